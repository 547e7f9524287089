"""Commands that found a run and let peers into it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.app import app
from node.cli.options import Debug
from node.state_dir import default_cache_dir


@app.command()
def init(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Manifest to write; no file is overwritten.")
    ] = Path("manifest.json"),
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file with the manifest's fields; flags win over it."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.", show_default="run")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of weights and data order.", show_default="0")
    ] = None,
    blocks: Annotated[
        int | None, typer.Option(help="Blocks of the model.", show_default="3")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="Layers in each block.", show_default="4")
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Width of the model (d_model).", show_default="128")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.", show_default="4")] = None,
    context: Annotated[
        int | None, typer.Option(help="Context in bytes.", show_default="128")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="plain, cascade, diffusion or end_to_end.", show_default="plain"),
    ] = None,
    round_s: Annotated[
        float | None, typer.Option("--round-s", help="Seconds between averages.", show_default="30")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Sequences in a local step.", show_default="32")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak learning rate.", show_default="0.004")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Train on this text file or folder.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Train on this Hugging Face data set (NAME[:CONFIG]).")
    ] = None,
    owner_key: Annotated[
        Path | None,
        typer.Option(
            help="Close the run: only peers with a token of this key's owner may hold its blocks. "
            "The key file is made if it is missing."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Found a run: write its manifest and print its id."""
    from node.commands.init import InitOptions, write_manifest
    from node.log_setup import set_up_logging

    set_up_logging(is_debugging=debug)
    flags: dict[str, dict[str, object] | object] = {
        "name": name,
        "seed": seed,
        "model": {
            "num_blocks": blocks,
            "layers_per_block": layers,
            "d_model": width,
            "num_heads": heads,
            "context": context,
        },
        "objective": {"name": objective},
        "rounds": {"round_s": round_s},
        "optimizer": {"batch_size": batch_size, "learning_rate": learning_rate},
    }
    write_manifest(
        InitOptions(
            output=output,
            config=config,
            flags=flags,
            text=text,
            dataset=dataset,
            owner_key=owner_key,
            cache_dir=default_cache_dir(),
        )
    )


token = typer.Typer(help="Tokens of closed runs.", no_args_is_help=True)
app.add_typer(token, name="token")


@token.command("issue")
def issue(
    peer: Annotated[str, typer.Argument(help="Peer id of the volunteer, as its node prints it.")],
    owner_key: Annotated[Path, typer.Option(help="Key file of the run's owner.")],
    manifest: Annotated[Path, typer.Option(help="Manifest file of the run.")],
    days: Annotated[int, typer.Option(min=1, max=3660, help="Until it expires.")] = 90,
) -> None:
    """Sign for a peer, so that it may hold blocks of a closed run; prints its token."""
    from node.commands.token import issue_token

    issue_token(owner_key=owner_key, manifest=manifest, peer=peer, days=days)
