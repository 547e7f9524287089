"""A short visit to a swarm, as `status`, `generate` and `eval` pay it: reads, stores nothing."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bt_p2p.clock import SystemClock
from bt_p2p.errors import BootstrapError, ConfigError
from bt_p2p.protocol.address import (
    PeerAddress,
    parse_initial_peers,
    parse_peer_address,
    parse_peer_addresses,
)
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from bt_p2p.swarm.block_rpc import HivemindBlockClient
from bt_p2p.swarm.directory import HivemindDirectory
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer
from bt_p2p.swarm.reach import probe
from node.asked_model import AskedModel
from node.isolation import redial_s
from node.manifests import choose_run
from node.snapshot import read_snapshot
from node.state_dir import StateDir
from node.stop import StopRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A visitor's view of one run."""

    peer: SwarmPeer
    directory: HivemindDirectory
    manifest: RunManifest
    met: dict[str, PeerAddress] = field(default_factory=dict)
    """Peers of the run seen so far, by peer id."""

    def overview(self) -> SwarmOverview:
        """Read the swarm now; raises SwarmError."""
        view = self.directory.read(self.manifest)
        for lease in view.leases:
            for text in lease.addresses[:1]:
                with contextlib.suppress(ConfigError):  # a stranger's
                    self.met[lease.peer_id] = parse_peer_address(text)
        return make_overview(self.manifest, view, now_s=SystemClock().now_s())

    def asked(self) -> AskedModel:
        """The run, to be generated with and scored."""
        return AskedModel(
            manifest=self.manifest,
            client=HivemindBlockClient(self.peer.p2p),
            look_up=self.overview,
            loop=self.peer.loop,
        )


def entry_points(
    initial_peers: Sequence[str], state_dir: StateDir, *, met_before: Sequence[str] = ()
) -> list[PeerAddress]:
    """Whom to ask: those named, else the node that runs here, else peers met before.

    Args:
        initial_peers: as the user gave them.
        state_dir: of the node that runs here.
        met_before: peers that this program knew before it was rebuilt; asked beside those named.

    Raises:
        ConfigError: a named address is malformed, or there is nobody to ask.
    """
    named = parse_initial_peers([*initial_peers, *met_before])
    if named:
        return named
    snapshot = read_snapshot(state_dir.path)
    if snapshot is not None and snapshot.addresses:
        return parse_peer_addresses(snapshot.addresses)
    remembered = state_dir.remembered_peers()
    if remembered:
        return remembered
    raise ConfigError(
        f"no peer to ask: no node runs with state folder {state_dir.path}; name one with "
        f"--initial-peers, or start one with: bt-node join"
    )


def wait_for_entry(
    addresses: Sequence[PeerAddress], stop: StopRequest, say: Callable[[str], None]
) -> bool:
    """Wait until a peer can be dialled, however long that takes; False if a stop comes first.

    Args:
        addresses: whom to dial.
        stop: ends the wait.
        say: tells the user, once.
    """
    chance = random.SystemRandom()
    num_tries = 0
    while not stop.is_requested:
        found = probe(addresses)
        if not all(reach.problem for reach in found):
            return True
        if not num_tries:
            say(f"none of {len(found)} known peers answers; dialling them until one does")
        stop.event.wait(redial_s(num_tries, chance))
        num_tries += 1
    return False


@contextmanager
def visit(
    addresses: Sequence[PeerAddress], *, run: str | None, run_here: str | None = None
) -> Iterator[Visit]:
    """Join as a client for the time of the block.

    Args:
        addresses: peers to enter through.
        run: run id or the start of one, as the user gave it.
        run_here: run of the node on this machine, preferred if the user named none.

    Raises:
        BootstrapError: nobody answers.
        ConfigError: it is not clear which run is meant.
    """
    if not addresses:
        raise BootstrapError("no peer to ask; name one with --initial-peers")
    peer = start_peer(PeerOptions(initial_peers=tuple(addresses), is_client=True))
    try:
        directory = HivemindDirectory(peer.dht)
        manifest = choose_run(directory.runs(), run or run_here)
        yield Visit(peer=peer, directory=directory, manifest=manifest)
    finally:
        peer.stop()
