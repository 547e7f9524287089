"""`bt-node join`: arguments checked in milliseconds, then imports, then the node."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import typer

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.address import check_announced, parse_initial_peers
from bt_p2p.protocol.assignment import parse_span
from bt_p2p.protocol.identity import PeerIdentity
from node.commands.config import sourced_settings
from node.http.place import check_free, http_place
from node.log_setup import set_up_logging
from node.membership import read_token
from node.rebuild import Supervisor
from node.state_dir import StateDir
from node.stop import StopRequest
from node.tui.progress import JoinReporter
from node.tui.terminal import can_redraw, make_console

logger = logging.getLogger(__name__)


def join_swarm(
    *,
    initial_peers: Sequence[str],
    run: str | None,
    manifest: Path | None,
    block: int | None,
    span: str | None,
    data: Path | None,
    host: str,
    port: int,
    announce: Sequence[str],
    outbound_only: bool,
    device: str,
    config: Path | None,
    manners: Mapping[str, object],
    run_token: str | None,
    run_token_file: Path | None,
    max_rounds: int | None,
    http_host: str,
    http_port: int | None,
    no_http: bool,
    identity: Path | None,
    state_path: Path,
    plain: bool,
    debug: bool,
) -> int:
    """Run a node until it is asked to stop; returns the exit code.

    Raises:
        ConfigError: an argument is wrong.
        BtError: the node cannot go on.
    """
    state = StateDir(state_path)
    addresses = parse_initial_peers(initial_peers)
    blocks = None if span is None else parse_span(span)
    token = read_token(run_token, run_token_file)
    http = http_place(http_host, http_port, is_off=no_http)
    _check_early(state, identity, data, manifest, block)
    for address in announce:
        check_announced(address)
    if outbound_only and announce:
        raise ConfigError("--outbound-only and --announce exclude each other: give one of them")
    settings = sourced_settings(flags=manners, config=config, state_path=state_path).settings
    if settings.nice is not None:
        _be_nice(settings.nice)
    state.create()
    set_up_logging(is_debugging=debug, log_path=state.log_path)
    stop = StopRequest()
    stop.is_starting = True
    stop.listen()
    supervisor = Supervisor(stop, _say)
    if supervisor.last is None:
        check_free(http)

    def run_it() -> None:
        console = make_console(stderr=True)
        with JoinReporter(console, live=can_redraw(console) and not plain) as reporter:
            reporter.line("starting (loading torch and hivemind takes a few seconds)")
            import torch

            from node.join import run_node
            from node.join_options import JoinOptions

            if settings.threads is not None:
                torch.set_num_threads(settings.threads)
            run_node(
                JoinOptions(
                    initial_peers=tuple(addresses),
                    state_dir=state,
                    identity_path=identity,
                    manifest_path=manifest,
                    run=run,
                    block=block,
                    span=blocks,
                    data=data,
                    host=host,
                    port=port,
                    announce=tuple(announce),
                    is_outbound_only=outbound_only,
                    device=device,
                    run_token=token,
                    max_rounds=max_rounds,
                    settings=settings,
                    http=http,
                ),
                reporter,
                stop,
                supervisor,
            )

    try:
        return supervisor.run(run_it)
    except Exception as exc:
        if stop.is_starting and stop.signal_number:  # an import makes what it likes of SystemExit
            raise SystemExit(stop.exit_code) from None
        if "trained" not in supervisor.kept:
            from node.join_failure import record_failure

            record_failure(state, exc)
        raise


def _be_nice(level: int) -> None:
    """Give way to other programs, with all child processes."""
    try:
        psutil.Process().nice(level)
    except psutil.AccessDenied as exc:
        raise ConfigError(
            f"nice {level} is not allowed: this shell runs at {psutil.Process().nice()} already, and "
            f"only root may go back; leave nice out, or set it higher"
        ) from exc


def _say(text: str) -> None:
    logger.warning("%s", text)
    typer.echo(f"bt-node: {text}", err=True)


def _check_early(
    state: StateDir,
    identity: Path | None,
    data: Path | None,
    manifest: Path | None,
    block: int | None,
) -> None:
    """Whatever can be told wrong before torch is loaded."""
    identity_path = identity or state.identity_path
    if identity_path.exists():
        PeerIdentity.load(identity_path)
    if data is not None and not data.exists():
        raise ConfigError(f"data {data} does not exist; check the path")
    if manifest is not None and not manifest.exists():
        raise ConfigError(f"manifest {manifest} does not exist; make one with: bt-node init")
    if block is not None and block < 0:
        raise ConfigError(f"block {block} is below 0")
