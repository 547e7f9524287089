"""The command line of `bt-node`. Importing it, and `--help`, load neither torch nor hivemind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from bt_p2p import __version__
from bt_p2p.chain.modes import GenerateMode, Precision
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.limits import PROTOCOL_VERSION
from node.command_line import run_app
from node.state_dir import StateDir, default_cache_dir, default_state_dir

app = typer.Typer(
    name="bt-node",
    help="Lend this computer to a swarm that trains one language model, a block per peer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Typer reads annotations at run time, and Optional is what it documents.
InitialPeers = Annotated[
    list[str] | None,
    typer.Option(
        "--initial-peers",
        metavar="MULTIADDR",
        envvar="BT_NODE_INITIAL_PEERS",
        help="Peers to enter the swarm through; repeat it, or separate them by commas.",
    ),
]
Run = Annotated[
    str | None,
    typer.Option("--run", envvar="BT_NODE_RUN", help="Run id, or the start of one."),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="BT_NODE_STATE_DIR",
        help="Folder of identity, checkpoints and log.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Log everything; show tracebacks.")]
PrecisionName = Annotated[
    str,
    typer.Option(
        "--precision",
        help="How numbers travel: float32 is exact, float16 half the bytes, int8 a quarter between "
        "blocks that need each other.",
    ),
]
Local = Annotated[
    Path | None,
    typer.Option("--local", help="Ask a folder that bt-node export wrote, and no swarm."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "bt-node")


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"bt-node {__version__} (protocol {PROTOCOL_VERSION})")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def init(
    output: Annotated[Path, typer.Option("--output", "-o", help="Manifest to write.")] = Path(
        "manifest.json"
    ),
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file with the manifest's fields.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data order.")] = None,
    blocks: Annotated[int | None, typer.Option(help="Blocks of the model.")] = None,
    layers: Annotated[int | None, typer.Option(help="Layers in each block.")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the model (d_model).")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.")] = None,
    context: Annotated[int | None, typer.Option(help="Context in bytes.")] = None,
    objective: Annotated[str | None, typer.Option(help="plain, diffusion or end_to_end.")] = None,
    round_s: Annotated[
        float | None, typer.Option("--round-s", help="Seconds between averages.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Sequences in a local step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
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


@app.command()
def join(
    initial_peers: InitialPeers = None,
    run: Run = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Manifest file; fetched from the swarm if not given.")
    ] = None,
    block: Annotated[
        int | None, typer.Option(help="Block to train; the thinnest if not given.")
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:END",
            help="Blocks to serve, 0:2 for blocks 0 and 1; one is trained, the others are copies.",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where your copy of the run's text is.")] = None,
    host: Annotated[str, typer.Option(help="IP address to listen on.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="BT_NODE_PORT", help="0 takes any free port.")
    ] = 0,
    announce: Annotated[
        list[str] | None,
        typer.Option(metavar="MULTIADDR", help="Address to tell others, if it is not found."),
    ] = None,
    outbound_only: Annotated[
        bool,
        typer.Option("--outbound-only", help="Accept no connections; be found behind relays."),
    ] = False,
    device: Annotated[
        str, typer.Option(envvar="BT_NODE_DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, envvar="BT_NODE_THREADS", help="CPU threads to use.")
    ] = None,
    run_token: Annotated[
        str | None,
        typer.Option(envvar="BT_NODE_RUN_TOKEN", help="What lets this node into a closed run."),
    ] = None,
    run_token_file: Annotated[Path | None, typer.Option(help="File with the run token.")] = None,
    max_rounds: Annotated[
        int | None, typer.Option(min=1, help="Leave after this many rounds.")
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(help="Key file; in the state folder if not given.")
    ] = None,
    state_dir: State = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live panel.")] = False,
    debug: Debug = False,
) -> int:
    """Join a swarm: train one block, average it with others, serve it. Ctrl-C leaves in order."""
    from node.commands.join import join_swarm

    return join_swarm(
        initial_peers=initial_peers or [],
        run=run,
        manifest=manifest,
        block=block,
        span=span,
        data=data,
        host=host,
        port=port,
        announce=announce or [],
        outbound_only=outbound_only,
        device=device,
        threads=threads,
        run_token=run_token,
        run_token_file=run_token_file,
        max_rounds=max_rounds,
        identity=identity,
        state_path=_state(state_dir).path,
        plain=plain,
        debug=debug,
    )


@app.command()
def doctor(
    initial_peers: InitialPeers = None,
    run: Run = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Manifest file; asked from the swarm if not given.")
    ] = None,
    host: Annotated[str, typer.Option(help="IP address to listen on.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="BT_NODE_PORT", help="Port to listen on.")
    ] = 0,
    announce: Annotated[
        list[str] | None,
        typer.Option(metavar="MULTIADDR", help="Address to tell others, if it is not found."),
    ] = None,
    device: Annotated[
        str, typer.Option(envvar="BT_NODE_DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
    ] = "auto",
    as_json: Json = False,
    state_dir: State = None,
    debug: Debug = False,
) -> int:
    """Look for what would keep this machine from joining: a dry run, with a fix for each finding."""
    from node.commands.doctor import run_doctor

    return run_doctor(
        initial_peers=initial_peers or [],
        run=run,
        manifest=manifest,
        host=host,
        port=port,
        announce=announce or [],
        device=device,
        as_json=as_json,
        state_path=_state(state_dir).path,
        debug=debug,
    )


@app.command()
def status(
    initial_peers: InitialPeers = None,
    run: Run = None,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and end.")] = False,
    as_json: Json = False,
    state_dir: State = None,
    debug: Debug = False,
) -> None:
    """Show the swarm: blocks, holders, rounds, loss, and the node that runs here."""
    from node.commands.status import show_status

    show_status(
        initial_peers=initial_peers or [],
        run=run,
        once=once,
        as_json=as_json,
        state_path=_state(state_dir).path,
        debug=debug,
    )


@app.command()
def generate(
    prompt: Annotated[
        str | None, typer.Argument(help="Text to continue; read from stdin if it is -.")
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
    max_new_bytes: Annotated[int, typer.Option("--max-new-bytes", "-n")] = 200,
    chunk: Annotated[
        int | None, typer.Option(help="sweep: bytes in one traversal; draft: guesses.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.8,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest bytes only.")] = 0.95,
    seed: Annotated[int | None, typer.Option(help="Same seed and model, same text.")] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep only the end of a prompt over the context.")
    ] = False,
    precision: PrecisionName = "float32",
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait for a missing block.")
    ] = 0.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Holders and milliseconds, on stderr.")
    ] = False,
    as_json: Json = False,
    state_dir: State = None,
    debug: Debug = False,
) -> int:
    """Continue a text through a chain of holders, one for each block."""
    from node.commands.generate import GenerateRequest, generate_text

    return generate_text(
        GenerateRequest(
            prompt=prompt,
            initial_peers=tuple(initial_peers or ()),
            run=run,
            local=local,
            mode=_mode(mode),
            max_new_bytes=max_new_bytes,
            chunk=chunk,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            truncate=truncate,
            precision=_precision(precision),
            wait_s=wait,
            verbose=verbose,
            as_json=as_json,
            state_path=_state(state_dir).path,
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
            help="Key that clients must send; needed on other hosts than 127.0.0.1.",
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
            mode=_mode(mode),
            precision=_precision(precision),
            max_concurrent=max_concurrent,
            max_tokens=max_tokens,
            state_path=_state(state_dir).path,
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
    """Score the swarm's current model on a text: honest cross entropy, per block and final."""
    from node.commands.evaluate import evaluate_file

    evaluate_file(
        file=file,
        local=local,
        initial_peers=initial_peers or [],
        run=run,
        max_bytes=max_bytes,
        as_json=as_json,
        state_path=_state(state_dir).path,
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
    """Fetch all blocks of a run into a folder that needs no swarm."""
    from node.commands.export import export_model

    export_model(
        out=out,
        initial_peers=initial_peers or [],
        run=run,
        as_json=as_json,
        state_path=_state(state_dir).path,
        debug=debug,
    )


def _state(path: Path | None) -> StateDir:
    return StateDir(path or default_state_dir())


def _mode(name: str) -> GenerateMode:
    return cast("GenerateMode", _one_of(get_args(GenerateMode), "mode", name))


def _precision(name: str) -> Precision:
    return cast("Precision", _one_of(get_args(Precision), "precision", name))


def _one_of(names: Sequence[str], what: str, name: str) -> str:
    if name not in names:
        raise ConfigError(f"{what} {name!r} is not one of: {', '.join(names)}")
    return name
