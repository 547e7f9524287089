"""`bt-node serve`: an OpenAI-compatible HTTP server over the swarm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from bt_p2p.chain.modes import GenerateMode, Precision
from node.log_setup import set_up_logging
from node.rebuild import Supervisor
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
    stop = StopRequest()
    stop.listen()
    supervisor = Supervisor(stop, _say)
    # a rebuilt server is where its clients know it to be
    port = request.port or int(supervisor.kept.get("port", "0"))
    listen(request.host, port).close()  # tells early; bound again once all is forked
    return supervisor.run(lambda: _serve(request, port, stop, supervisor))


def _serve(request: ServeRequest, port: int, stop: StopRequest, supervisor: Supervisor) -> None:
    _say("starting (loading torch and hivemind takes a few seconds)")

    from bt_p2p.clock import SystemClock
    from bt_p2p.protocol.limits import HEALTH_TIMEOUT_S
    from bt_p2p.swarm.block_rpc import HivemindBlockClient
    from bt_p2p.swarm.health import peer_problem
    from node.client import entry_points, visit, wait_for_entry
    from node.draft import DraftBlock
    from node.health_watch import HealthWatch
    from node.neighbourhood import Neighbourhood
    from node.serve.app import make_app
    from node.serve.completions import CompletionLimits
    from node.serve.served_run import ServedRun

    state = StateDir(request.state_path)
    here = read_snapshot(state.path)
    run = supervisor.kept.get("run", request.run)
    known = supervisor.kept.get("peers", "").split()
    addresses = entry_points(request.initial_peers, state, met_before=known)
    if supervisor.last is not None and not wait_for_entry(addresses, stop, _say):
        return
    with visit(addresses, run=run, run_here=here.run_id if here else None) as found:
        supervisor.kept["run"] = found.manifest.run_id
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
        health = HealthWatch(
            [lambda: peer_problem(found.peer, timeout_s=HEALTH_TIMEOUT_S)], stop.ask_to_rebuild
        )
        neighbourhood = Neighbourhood(
            found.peer, lambda: [*addresses, *found.met.values()], _warn, SystemClock()
        )
        with listen(request.host, port) as listener:
            supervisor.kept["port"] = str(listener.getsockname()[1])
            if stop.is_requested:  # before the line above
                server.end()
            else:
                _say(f"run {found.manifest.run_id} on {url_of(listener)}")
            health.start()
            neighbourhood.start()
            # on the loop of the peer-to-peer connection: cancelling a request needs no other thread
            found.peer.loop.start(server.serve(listener)).result()
            health.stop()
            neighbourhood.stop()
            peers = dict.fromkeys((*addresses, *found.met.values()))
            supervisor.kept["peers"] = " ".join(address.text for address in peers)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _warn(_kind: str, _text: str) -> None:
    """A server has no page of its own for warnings; they are in its log."""
