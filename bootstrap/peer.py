"""A DHT peer with a fixed identity that holds manifests; it trains and serves nothing.

It is a convenience: once peers know each other, it may go away.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from bootstrap.page.app import make_swarm_app
from bootstrap.page.board import SwarmBoard
from bt_p2p.clock import SystemClock
from bt_p2p.errors import BootstrapError, SwarmError
from bt_p2p.protocol.address import (
    PeerAddress,
    check_announced,
    parse_initial_peers,
    parse_peer_address,
)
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.identity import load_or_create_identity
from bt_p2p.protocol.limits import HEALTH_TIMEOUT_S, MANIFEST_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.directory import HivemindDirectory
from bt_p2p.swarm.health import peer_problem
from bt_p2p.swarm.listen import listen_address
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer
from node.health_watch import HealthWatch
from node.http.place import BOOTSTRAP_HTTP_PORT, HttpPlace, base_url, check_free, open_place
from node.http.thread import HttpThread
from node.log_setup import set_up_logging
from node.manifests import join_command, read_manifest
from node.neighbourhood import Neighbourhood
from node.port import free_port, listening_port
from node.rebuild import Supervisor
from node.state_dir import NodeLock, StateDir
from node.stop import StopRequest

logger = logging.getLogger(__name__)

_RETRY_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BootstrapOptions:
    """What the user asked for."""

    manifest_paths: tuple[Path, ...]
    host: str
    port: int
    announce: tuple[str, ...]
    initial_peers: tuple[str, ...]
    identity_path: Path | None
    state_path: Path | None
    http: HttpPlace | None
    """Where the swarm page is; None for nowhere."""
    is_debugging: bool


def run_bootstrap(options: BootstrapOptions) -> int:
    """Serve until a signal; returns the exit code.

    Raises:
        ConfigError: something the user gave is wrong.
        SwarmError: the peer cannot start or enter the swarm.
    """
    set_up_logging(is_debugging=options.is_debugging)
    addresses = parse_initial_peers(options.initial_peers)
    for address in options.announce:
        check_announced(address)
    manifests = [read_manifest(path) for path in options.manifest_paths]
    stop = StopRequest()
    stop.listen()
    supervisor = Supervisor(stop, _say)
    if supervisor.last is None:
        check_free(options.http)
    state = StateDir(
        options.state_path or Path(platformdirs.user_state_dir("bt-bootstrap", appauthor=False))
    )
    state.create()
    return supervisor.run(
        lambda: _serve(options, tuple(addresses), manifests, state, stop, supervisor)
    )


def _serve(
    options: BootstrapOptions,
    initial_peers: tuple[PeerAddress, ...],
    manifests: list[RunManifest],
    state: StateDir,
    stop: StopRequest,
    supervisor: Supervisor,
) -> None:
    identity_path = options.identity_path or state.identity_path
    identity, is_new = load_or_create_identity(identity_path)
    _say(f"identity {identity.peer_id} in {identity_path}{': back it up' if is_new else ''}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(NodeLock(state))
        port = free_port(options.host, options.port, supervisor, stop)

        def start(peers: tuple[PeerAddress, ...]) -> SwarmPeer:
            return start_peer(
                PeerOptions(
                    initial_peers=peers,
                    identity_path=identity_path,
                    listen=(listen_address(options.host, port),),
                    announce=options.announce,
                )
            )

        try:
            peer = start(initial_peers)
        except BootstrapError:
            if supervisor.last is None:
                raise
            peer = start(())  # from now on it dials
        stack.callback(lambda: peer.stop(at_once=bool(stop.rebuild_reason)))
        for watch in _watches(peer, initial_peers, stop):
            watch.start()
            stack.callback(watch.stop)
        directory = HivemindDirectory(peer.dht)
        for manifest in manifests:
            peer.protect_run(manifest)
        supervisor.kept["port"] = str(listening_port(peer, port, options.announce))
        addresses = peer.addresses()
        if options.http is not None:
            board = SwarmBoard(
                directory,
                manifests,
                SystemClock(),
                peer_id=identity.peer_id,
                addresses=peer.addresses,
            )
            _serve_page(options.http, board, stack, supervisor)
        for address in addresses:
            remark = parse_peer_address(address).remark
            for command in _commands(manifests, address):
                _say(f"{command}   # {remark}" if remark else command)
        _hold(directory, manifests, stop)


def _serve_page(
    place: HttpPlace, board: SwarmBoard, stack: contextlib.ExitStack, supervisor: Supervisor
) -> None:
    """All processes are forked: from here on there may be a port of our own."""
    listener = open_place(place, BOOTSTRAP_HTTP_PORT, _say, supervisor)
    if listener is None:
        return
    server = HttpThread(make_swarm_app(board, SystemClock()), listener)
    board.start()
    stack.callback(board.stop)
    server.start()
    stack.callback(server.stop)
    _say(f"swarm page on {base_url(listener)}/")


def _watches(
    peer: SwarmPeer, initial_peers: tuple[PeerAddress, ...], stop: StopRequest
) -> tuple[HealthWatch, Neighbourhood]:
    health = HealthWatch(
        [lambda: peer_problem(peer, timeout_s=HEALTH_TIMEOUT_S)], stop.ask_to_rebuild
    )
    return health, Neighbourhood(peer, lambda: initial_peers, _warn, SystemClock())


def _warn(_kind: str, _text: str) -> None:
    """There is no page for warnings; they are in the log."""


def _hold(directory: Directory, manifests: list[RunManifest], stop: StopRequest) -> None:
    """Keep the manifests in the DHT until the stop."""
    while not stop.is_requested:
        wait_s = MANIFEST_TTL_S / 3
        try:
            for manifest in manifests:
                directory.publish(manifest)
        except SwarmError as exc:
            logger.warning("%s; trying again", exc)
            wait_s = _RETRY_S
        stop.event.wait(wait_s)


def _commands(manifests: list[RunManifest], address: str) -> list[str]:
    """What to paste for an address, one line for each run held here."""
    if not manifests:
        return [f"bt-node join --initial-peers {address}"]
    return [join_command(manifest, address) for manifest in manifests]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
