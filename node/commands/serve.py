"""`bt-node serve`: an OpenAI-compatible HTTP server over the swarm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from bt_p2p.chain.modes import GenerateMode, Precision
from node.log_setup import set_up_logging
from node.serve.guard import check_exposure
from node.serve.server import HttpServer, listen, url_of
from node.snapshot import read_snapshot
from node.state_dir import StateDir
from node.stop import StopRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeRequest:
    """What the user asked for."""

    initial_peers: tuple[str, ...]
    run: str | None
    host: str
    port: int
    api_key: str | None
    mode: GenerateMode
    precision: Precision
    max_concurrent: int
    max_tokens: int
    state_path: Path
    debug: bool


def serve_swarm(request: ServeRequest) -> int:
    """Serve until a signal; returns the exit code.

    Raises:
        ConfigError: an option is wrong, the port is in use, or strangers could use the server.
        SwarmError: nobody answers, or no run is known.
    """
    set_up_logging(is_debugging=request.debug)
    check_exposure(request.host, request.api_key)
    listen(request.host, request.port).close()  # tells early; bound again once all is forked
    stop = StopRequest()
    stop.listen()
    typer.echo("starting (loading torch and hivemind takes a few seconds)", err=True)

    from bt_p2p.clock import SystemClock
    from bt_p2p.swarm.block_rpc import HivemindBlockClient
    from node.client import entry_points, visit
    from node.draft import DraftBlock
    from node.serve.app import make_app
    from node.serve.completions import CompletionLimits
    from node.serve.served_run import ServedRun

    state = StateDir(request.state_path)
    here = read_snapshot(state.path)
    addresses = entry_points(request.initial_peers, state)
    with visit(addresses, run=request.run, run_here=here.run_id if here else None) as found:
        client = HivemindBlockClient(found.peer.p2p)
        app = make_app(
            ServedRun(
                manifest=found.manifest,
                client=client,
                look_up=found.overview,
                precision=request.precision,
                draft_block=DraftBlock(found.manifest, client, found.overview, SystemClock()),
            ),
            CompletionLimits(
                max_concurrent=request.max_concurrent,
                max_tokens=request.max_tokens,
                mode=request.mode,
            ),
            api_key=request.api_key,
        )
        server = HttpServer(app, is_debugging=request.debug)
        stop.on_request(server.end)
        with listen(request.host, request.port) as listener:
            if stop.is_requested:  # before the line above
                server.end()
            else:
                typer.echo(f"run {found.manifest.run_id} on {url_of(listener)}", err=True)
            # on the loop of the peer-to-peer connection: cancelling a request needs no other thread
            found.peer.loop.start(server.serve(listener)).result()
    return stop.exit_code
