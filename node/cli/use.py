"""Commands that use the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.app import app
from node.cli.options import (
    Debug,
    InitialPeers,
    Json,
    Local,
    PrecisionName,
    Run,
    State,
    generate_mode,
    state_path,
    wire_precision,
)


@app.command()
def generate(
    prompt: Annotated[
        str | None, typer.Argument(help="Text to continue; - or a pipe reads it from stdin.")
    ] = None,
    initial_peers: InitialPeers = None,
    run: Run = None,
    local: Local = None,
    mode: Annotated[
        str,
        typer.Option(
            help="ar: a byte each traversal; draft: the same text in fewer traversals, guessed by "
            "one block fetched first; sweep: a chunk each traversal, rougher."
        ),
    ] = "ar",
    max_new_bytes: Annotated[
        int, typer.Option("--max-new-bytes", "-n", help="1 to 100,000.")
    ] = 200,
    chunk: Annotated[
        int | None,
        typer.Option(
            help="sweep: bytes in one traversal; draft: guesses that one traversal checks.",
            show_default="sweep: the longest trained; draft: 8",
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 to 10; 0 is greedy.")] = 0.8,
    top_p: Annotated[
        float, typer.Option(help="Draw among the likeliest bytes that have this probability.")
    ] = 0.95,
    seed: Annotated[int | None, typer.Option(help="Same seed and model, same text.")] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep only the end of a prompt over the context.")
    ] = False,
    precision: PrecisionName = "float32",
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait for a missing block.")
    ] = 0.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Holders, rounds and milliseconds, on stderr.")
    ] = False,
    as_json: Json = False,
    state_dir: State = None,
    debug: Debug = False,
) -> int:
    """Continue a text through a chain of holders, one for each block.

    Prompt and answer go to standard output.
    """
    from node.commands.generate import GenerateRequest, generate_text

    return generate_text(
        GenerateRequest(
            prompt=prompt,
            initial_peers=tuple(initial_peers or ()),
            run=run,
            local=local,
            mode=generate_mode(mode),
            max_new_bytes=max_new_bytes,
            chunk=chunk,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            truncate=truncate,
            precision=wire_precision(precision),
            wait_s=wait,
            verbose=verbose,
            as_json=as_json,
            state_path=state_path(state_dir),
            debug=debug,
        )
    )


@app.command()
def serve(
    initial_peers: InitialPeers = None,
    run: Run = None,
    host: Annotated[str, typer.Option(help="IP address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="BT_NODE_API_KEY",
            help="Key that clients must send, needed on other hosts than 127.0.0.1; others on "
            "this machine can see options, so prefer the variable.",
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="ar, draft or sweep, for requests that name no mode.")
    ] = "ar",
    precision: PrecisionName = "float32",
    max_concurrent: Annotated[
        int, typer.Option(min=1, help="Requests answered at once; more get status 429.")
    ] = 8,
    max_tokens: Annotated[
        int, typer.Option(min=1, max=100_000, help="Most bytes that one request may ask for.")
    ] = 4096,
    state_dir: State = None,
    debug: Debug = False,
) -> int:
    """Serve the swarm's model over HTTP, as OpenAI's clients expect it. Ctrl-C ends it."""
    from node.commands.serve import ServeRequest, serve_swarm

    return serve_swarm(
        ServeRequest(
            initial_peers=tuple(initial_peers or ()),
            run=run,
            host=host,
            port=port,
            api_key=api_key,
            mode=generate_mode(mode),
            precision=wire_precision(precision),
            max_concurrent=max_concurrent,
            max_tokens=max_tokens,
            state_path=state_path(state_dir),
            debug=debug,
        )
    )


@app.command("eval")
def evaluate(
    file: Annotated[Path, typer.Argument(help="Text file or folder to score.")],
    initial_peers: InitialPeers = None,
    run: Run = None,
    local: Local = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=2, help="Score only the first bytes.")
    ] = None,
    as_json: Json = False,
    state_dir: State = None,
    debug: Debug = False,
) -> None:
    """Score the swarm's current model on a text: honest cross entropy, per block and final.

    Windows of one context are scored one after another without overlap; every byte but the first is
    scored once.
    """
    from node.commands.evaluate import evaluate_file

    evaluate_file(
        file=file,
        local=local,
        initial_peers=initial_peers or [],
        run=run,
        max_bytes=max_bytes,
        as_json=as_json,
        state_path=state_path(state_dir),
        debug=debug,
    )


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    initial_peers: InitialPeers = None,
    run: Run = None,
    as_json: Json = False,
    state_dir: State = None,
    debug: Debug = False,
) -> None:
    """Fetch all blocks of a run into a folder that needs no swarm.

    It then holds model.safetensors with every weight as blocks.BLOCK.NAME, manifest.json, and
    export.json with the hash of the weights, the rounds behind each block and who gave it. An older
    export there is replaced. bt-node generate and bt-node eval can read it, and check the hash.
    """
    from node.commands.export import export_model

    export_model(
        out=out,
        initial_peers=initial_peers or [],
        run=run,
        as_json=as_json,
        state_path=state_path(state_dir),
        debug=debug,
    )
