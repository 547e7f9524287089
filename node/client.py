"""A short visit to a swarm, as `status`, `generate` and `eval` pay it: reads, stores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bt_p2p.clock import SystemClock
from bt_p2p.errors import BootstrapError, ConfigError
from bt_p2p.protocol.address import PeerAddress, parse_peer_addresses
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from bt_p2p.swarm.block_rpc import HivemindBlockClient
from bt_p2p.swarm.directory import HivemindDirectory
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer
from node.asked_model import AskedModel
from node.manifests import choose_run
from node.snapshot import read_snapshot
from node.state_dir import StateDir


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A visitor's view of one run."""

    peer: SwarmPeer
    directory: HivemindDirectory
    manifest: RunManifest

    def overview(self) -> SwarmOverview:
        """Read the swarm now; raises SwarmError."""
        leases = self.directory.read(self.manifest)
        return make_overview(self.manifest, leases, now_s=SystemClock().now_s())

    def asked(self) -> AskedModel:
        """The run, to be generated with and scored."""
        return AskedModel(
            manifest=self.manifest,
            client=HivemindBlockClient(self.peer.p2p),
            look_up=self.overview,
            loop=self.peer.loop,
        )


def entry_points(initial_peers: Sequence[str], state_dir: StateDir) -> list[PeerAddress]:
    """Whom to ask: those named, else the node that runs here, else peers met before.

    Raises:
        ConfigError: a named address is malformed, or there is nobody to ask.
    """
    named = parse_peer_addresses(initial_peers)
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
