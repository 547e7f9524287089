"""Several hivemind peers in the test's own process. Import inside fixtures only: hivemind is slow.

Start them in the main thread. For peers that are to be killed see `peer_processes`.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer

LOCAL = "/ip4/127.0.0.1/tcp/0"


@dataclass(frozen=True, kw_only=True)
class LocalPeer:
    """A running peer and its key."""

    swarm: SwarmPeer
    identity: PeerIdentity


@contextlib.contextmanager
def local_swarm(folder: Path, num_peers: int) -> Iterator[list[LocalPeer]]:
    """Peers that joined each other on this machine; stopped at the end, last one first."""
    peers: list[LocalPeer] = []
    with contextlib.ExitStack() as stack:
        for _ in range(num_peers):
            identity = PeerIdentity.generate()
            path = folder / f"{uuid.uuid4().hex}.key"
            identity.save(path)
            initial = parse_peer_addresses(peers[0].swarm.addresses()) if peers else []
            options = PeerOptions(initial_peers=tuple(initial), identity_path=path, listen=(LOCAL,))
            peer = LocalPeer(swarm=start_peer(options), identity=identity)
            stack.callback(peer.swarm.stop)
            peers.append(peer)
        yield peers
