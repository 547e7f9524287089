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

from bt_p2p.errors import SwarmError
from bt_p2p.protocol.address import (
    check_announced,
    parse_peer_address,
    parse_peer_addresses,
)
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.identity import load_or_create_identity
from bt_p2p.protocol.limits import MANIFEST_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.directory import HivemindDirectory
from bt_p2p.swarm.listen import check_port_is_free, listen_address
from bt_p2p.swarm.process import PeerOptions, start_peer
from node.log_setup import set_up_logging
from node.manifests import join_command, read_manifest
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
    is_debugging: bool


def run_bootstrap(options: BootstrapOptions) -> int:
    """Serve until a signal; returns the exit code.

    Raises:
        ConfigError: something the user gave is wrong.
        SwarmError: the peer cannot start or enter the swarm.
    """
    set_up_logging(is_debugging=options.is_debugging)
    addresses = parse_peer_addresses(options.initial_peers)
    for address in options.announce:
        check_announced(address)
    manifests = [read_manifest(path) for path in options.manifest_paths]
    state = StateDir(
        options.state_path or Path(platformdirs.user_state_dir("bt-bootstrap", appauthor=False))
    )
    state.create()
    identity_path = options.identity_path or state.identity_path
    identity, is_new = load_or_create_identity(identity_path)
    _say(f"identity {identity.peer_id} in {identity_path}{': back it up' if is_new else ''}")
    stop = StopRequest()
    stop.listen()

    listen = listen_address(options.host, options.port)
    with contextlib.ExitStack() as stack:
        stack.enter_context(NodeLock(state))
        check_port_is_free(options.host, options.port)
        peer = start_peer(
            PeerOptions(
                initial_peers=tuple(addresses),
                identity_path=identity_path,
                listen=(listen,),
                announce=options.announce,
            )
        )
        stack.callback(peer.stop)
        directory = HivemindDirectory(peer.dht)
        for manifest in manifests:
            peer.protect_run(manifest)
        own = peer.addresses()
        for address in own:
            for command in _commands(manifests, address):
                _say(command + _remark(address))
        _hold(directory, manifests, stop)
    return stop.exit_code


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


def _remark(address: str) -> str:
    """Where an address works, if not everywhere."""
    parsed = parse_peer_address(address)
    if parsed.is_loopback:
        return "   # this machine only"
    return "   # this network only" if parsed.is_private else ""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
