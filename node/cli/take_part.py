"""Commands of a volunteer: join, look first, see what goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.app import app
from node.cli.options import (
    Announce,
    Block,
    Config,
    Data,
    Debug,
    Device,
    Host,
    Hours,
    Identity,
    IdleAfter,
    IdleLoad,
    IdleOnly,
    InitialPeers,
    Json,
    MemoryCap,
    Nice,
    OnBattery,
    Port,
    Run,
    RunToken,
    RunTokenFile,
    Span,
    State,
    Threads,
    UploadPerDay,
    UploadPerSecond,
    given,
    state_path,
)


@app.command()
def join(
    context: typer.Context,
    initial_peers: InitialPeers = None,
    run: Run = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Manifest file; fetched from the swarm if not given.")
    ] = None,
    block: Block = None,
    span: Span = None,
    data: Data = None,
    host: Host = "0.0.0.0",  # noqa: S104
    port: Port = 0,
    announce: Announce = None,
    outbound_only: Annotated[
        bool,
        typer.Option(
            "--outbound-only",
            help="Accept no connections, and be found behind relays; a node that others cannot "
            "dial finds that out and does the same.",
        ),
    ] = False,
    device: Device = "auto",
    config: Config = None,
    hours: Hours = None,
    idle_only: IdleOnly = None,
    idle_load: IdleLoad = None,
    idle_after_s: IdleAfter = None,
    on_battery: OnBattery = None,
    threads: Threads = None,
    nice: Nice = None,
    upload_bytes_per_s: UploadPerSecond = None,
    upload_bytes_per_day: UploadPerDay = None,
    memory_bytes: MemoryCap = None,
    run_token: RunToken = None,
    run_token_file: RunTokenFile = None,
    max_rounds: Annotated[
        int | None, typer.Option(min=1, help="Leave after this many rounds.")
    ] = None,
    http_host: Annotated[
        str, typer.Option(help="IP address of /metrics and /healthz.")
    ] = "127.0.0.1",
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            envvar="BT_NODE_HTTP_PORT",
            help="Port of /metrics and /healthz; 31381 if not given, or any free one if that is "
            "taken.",
        ),
    ] = None,
    no_http: Annotated[
        bool, typer.Option("--no-http", help="Serve neither /metrics nor /healthz.")
    ] = False,
    identity: Identity = None,
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
        config=config,
        manners=given(
            context,
            {
                "hours": hours,
                "idle_only": idle_only,
                "idle_load": idle_load,
                "idle_after_s": idle_after_s,
                "on_battery": on_battery,
                "threads": threads,
                "nice": nice,
                "upload_bytes_per_s": upload_bytes_per_s,
                "upload_bytes_per_day": upload_bytes_per_day,
                "memory_bytes": memory_bytes,
            },
        ),
        run_token=run_token,
        run_token_file=run_token_file,
        max_rounds=max_rounds,
        http_host=http_host,
        http_port=http_port,
        no_http=no_http,
        identity=identity,
        state_path=state_path(state_dir),
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
    block: Block = None,
    span: Span = None,
    data: Data = None,
    host: Host = "0.0.0.0",  # noqa: S104
    port: Port = 0,
    announce: Announce = None,
    device: Device = "auto",
    run_token: RunToken = None,
    run_token_file: RunTokenFile = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Look at this machine only, not at the network.")
    ] = False,
    as_json: Json = False,
    identity: Identity = None,
    state_dir: State = None,
    debug: Debug = False,
) -> int:
    """Look for what would keep this machine from joining: a dry run, with a fix for each finding."""
    from node.commands.doctor import run_doctor

    return run_doctor(
        initial_peers=initial_peers or [],
        run=run,
        manifest=manifest,
        block=block,
        span=span,
        data=data,
        host=host,
        port=port,
        announce=announce or [],
        device=device,
        run_token=run_token,
        run_token_file=run_token_file,
        quick=quick,
        as_json=as_json,
        identity=identity,
        state_path=state_path(state_dir),
        debug=debug,
    )


@app.command()
def status(
    initial_peers: InitialPeers = None,
    run: Run = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Print one snapshot and end; it is so where there is no terminal."
        ),
    ] = False,
    as_json: Json = False,
    state_dir: State = None,
    debug: Debug = False,
) -> int:
    """Show the swarm: blocks, holders, rounds, loss, and the node that runs here. Ctrl-C ends it."""
    from node.commands.status import show_status

    return show_status(
        initial_peers=initial_peers or [],
        run=run,
        once=once,
        as_json=as_json,
        state_path=state_path(state_dir),
        debug=debug,
    )


@app.command()
def why(as_json: Json = False, state_dir: State = None) -> int:
    """Say why the node that runs here is idle, slow, alone or refused, and what to do next."""
    from node.commands.why import show_why

    return show_why(as_json=as_json, state_path=state_path(state_dir))
