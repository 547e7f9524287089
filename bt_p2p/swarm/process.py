"""Starting and stopping a peer: the DHT child process, the daemon below it, and the RPC loop."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hivemind
import psutil
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from bt_p2p.errors import BootstrapError, SwarmError
from bt_p2p.protocol.address import PeerAddress, dialable, relay_address, routable_first
from bt_p2p.protocol.limits import (
    DHT_ANSWER_S,
    DHT_SILENT_S,
    DHT_TIMEOUT_S,
    DIAL_TIMEOUT_S,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
)
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.bridge import call_in_dht
from bt_p2p.swarm.checkup import CheckupServer
from bt_p2p.swarm.children import live_with_parent
from bt_p2p.swarm.hardening import harden
from bt_p2p.swarm.logs import route_hivemind_logs
from bt_p2p.swarm.loop_thread import LoopThread
from bt_p2p.swarm.reach import probe
from bt_p2p.swarm.relay import RelayPlaces
from bt_p2p.swarm.socket_folder import close_socket_folder, open_socket_folder
from bt_p2p.swarm.validators import RecordValidator, run_validator

logger = logging.getLogger(__name__)


class _Dht(hivemind.DHT):
    """A DHT process that ends with its parent."""

    def run(self) -> None:
        """Runs in the child."""
        live_with_parent()
        if sys.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stdin.close()
        super().run()


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerOptions:
    """How a peer takes part in the swarm."""

    initial_peers: tuple[PeerAddress, ...] = ()
    """Peers to join through; none starts a swarm of its own."""
    identity_path: Path | None = None
    """Key file; None is a throw-away identity."""
    listen: tuple[str, ...] = ()
    """Multiaddrs to listen on; none listens nowhere."""
    announce: tuple[str, ...] = ()
    """Multiaddrs to tell others in place of those found."""
    is_client: bool = False
    """Reads and writes the DHT, but stores nothing for others."""
    relays: tuple[PeerAddress, ...] = ()
    """Peers behind which others find this one, which then is a client and announces nothing else."""


class SwarmPeer:
    """One running peer. Start it in the main thread, before CUDA and before other threads.

    Attributes:
        dht: hivemind's DHT, for adapters of this package.
        loop: the thread on which RPC runs.
        p2p: the connection to the daemon, for use on `loop` only.
        peer_id: base58.
        unreachable: initial peers that did not answer, as "address: reason".
        places: at relays; None for a peer that needs none.
    """

    def __init__(
        self,
        dht: hivemind.DHT,
        loop: LoopThread,
        p2p: P2P,
        socket_folder: Path,
    ) -> None:
        """Use `start_peer`."""
        self.dht = dht
        self.loop = loop
        self.p2p = p2p
        self.peer_id: str = p2p.peer_id.to_base58()
        self.unreachable: tuple[str, ...] = ()
        self.places: RelayPlaces | None = None
        self._socket_folder = socket_folder
        self._daemons = psutil.Process(dht.pid).children()

    def addresses(self) -> list[str]:
        """Full multiaddrs under which others may dial this peer, public ones first."""
        found = call_in_dht(
            self.dht, _in_dht_addresses, timeout_s=DHT_TIMEOUT_S, what="asking for own addresses"
        )
        return routable_first(dialable(found))

    def protect_run(self, manifest: RunManifest) -> None:
        """From now on refuse unsigned records under the keys of this run."""
        validator = run_validator(manifest.run_id, manifest.model.num_blocks)
        call_in_dht(
            self.dht,
            functools.partial(_in_dht_add_validator, validator=validator),
            timeout_s=DHT_TIMEOUT_S,
            what="adding a run",
        )

    def stop(self, *, at_once: bool = False) -> None:
        """End the loop, the DHT child and the daemon, and remove their sockets; idempotent.

        Args:
            at_once: do not wait for a child that is broken to end in order.
        """
        try:
            self.loop.stop(timeout_s=STOP_TIMEOUT_S / 4)
        except TimeoutError:
            logger.warning("the RPC loop did not end in time")
        if self.dht.is_alive():
            if not at_once and all(daemon.is_running() for daemon in self._daemons):
                with contextlib.suppress(OSError, ValueError):  # its pipe is closed already
                    self.dht.shutdown()
                self.dht.join(STOP_TIMEOUT_S / 4)
            if self.dht.is_alive():
                self.dht.kill()
                self.dht.join(STOP_TIMEOUT_S / 4)
        _, alive = psutil.wait_procs(self._daemons, timeout=STOP_TIMEOUT_S / 8)
        for daemon in alive:  # it would keep our port
            daemon.kill()
        psutil.wait_procs(alive, timeout=STOP_TIMEOUT_S / 8)
        close_socket_folder(self._socket_folder)


def start_peer(options: PeerOptions) -> SwarmPeer:
    """Start a peer and join the swarm; takes about one second beside imports.

    Raises:
        BootstrapError: no initial peer could be reached; names each with its own reason.
        SwarmError: the daemon does not start.
    """
    harden()
    route_hivemind_logs()
    alive, dead = _dial(options.initial_peers)
    socket_folder = open_socket_folder()
    try:
        dht = _start_dht(options, alive)
    except BaseException:
        close_socket_folder(socket_folder)
        raise
    loop = LoopThread("rpc")
    try:
        maddr = call_in_dht(
            dht, _in_dht_daemon_address, timeout_s=DHT_TIMEOUT_S, what="finding the daemon"
        )
        p2p = loop.run(P2P.replicate(maddr), timeout_s=DHT_TIMEOUT_S)
    except BaseException:
        loop.stop(timeout_s=STOP_TIMEOUT_S / 4)
        dht.kill()
        close_socket_folder(socket_folder)
        raise
    peer = SwarmPeer(dht, loop, p2p, socket_folder)
    peer.unreachable = dead
    if options.relays:
        peer.places = RelayPlaces(p2p, [relay.peer_id for relay in options.relays])
        loop.run(peer.places.start(), timeout_s=DHT_TIMEOUT_S)
    if options.relays or not options.is_client:
        loop.run(CheckupServer(p2p).start(), timeout_s=DHT_TIMEOUT_S)
    return peer


def _dial(addresses: Sequence[PeerAddress]) -> tuple[list[PeerAddress], tuple[str, ...]]:
    found = probe(addresses)
    alive = [reach.address for reach in found if not reach.problem]
    dead = tuple(f"{reach.address.text}: {reach.problem}" for reach in found if reach.problem)
    if addresses and not alive:
        raise BootstrapError(
            f"cannot join: none of {len(found)} initial peers answers ({'; '.join(dead)}); check "
            f"the address with whoever runs that peer, and that you are online. A swarm needs one "
            f"public node, which others can dial; peers behind NAT alone cannot meet"
        )
    return alive, dead


def _start_dht(options: PeerOptions, initial_peers: Sequence[PeerAddress]) -> hivemind.DHT:
    kwargs: dict[str, Any] = {}
    if options.identity_path is not None:
        kwargs["identity_path"] = os.fspath(options.identity_path)
    if options.relays:
        kwargs["announce_maddrs"] = [relay_address(relay) for relay in options.relays]
        kwargs["force_reachability"] = "private"
    elif options.announce:
        kwargs["announce_maddrs"] = list(options.announce)
    if options.listen and not (options.relays or options.is_client):
        # lends itself as a relay, whatever the daemon guesses in a network without public peers
        kwargs["force_reachability"] = "public"
    dht = _Dht(
        initial_peers=[address.text for address in initial_peers] or None,
        start=False,
        record_validators=[RecordValidator()],
        host_maddrs=list(options.listen),
        no_listen=not options.listen,
        client_mode=options.is_client or bool(options.relays),
        strict=False,  # one peer with a wrong clock must not keep us out; see clock_leads_s
        check_if_identity_free=False,
        startup_timeout=START_TIMEOUT_S,
        wait_timeout=DHT_ANSWER_S,
        bootstrap_timeout=DIAL_TIMEOUT_S,
        blacklist_time=DHT_SILENT_S,
        **kwargs,
    )
    try:
        dht.run_in_background(await_ready=True, timeout=START_TIMEOUT_S + 5)
    except (P2PDaemonError, TimeoutError, RuntimeError) as exc:
        # it ends by itself after an error; killed too early, it keeps a lock of all hivemind processes
        dht.join(STOP_TIMEOUT_S / 4)
        dht.kill()
        dht.join(1)
        where = ", ".join(address.text for address in initial_peers)
        if isinstance(exc, RuntimeError):  # hivemind's, when nobody answers a ping
            raise BootstrapError(
                f"cannot join: {where} accepts connections, but its DHT process does not answer; "
                f"try again in a minute"
            ) from exc
        if "bootstrap" in str(exc) and initial_peers:
            raise BootstrapError(
                f"cannot join: {where} accepts connections, but not as that peer (another peer id "
                f"or another program answers there); ask for its current address"
            ) from exc
        raise SwarmError(
            f"the peer-to-peer daemon does not start: {_last_line(exc)}; try --debug"
        ) from exc
    return dht


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


async def _in_dht_addresses(_dht: hivemind.DHT, node: DHTNode) -> list[str]:
    try:
        return [str(address) for address in await node.get_visible_maddrs(latest=True)]
    except ValueError:  # listens nowhere
        return []


async def _in_dht_daemon_address(_dht: hivemind.DHT, node: DHTNode) -> Any:
    return node.p2p.daemon_listen_maddr


async def _in_dht_add_validator(
    _dht: hivemind.DHT, node: DHTNode, validator: RecordValidator
) -> None:
    node.protocol.record_validator.extend([validator])
