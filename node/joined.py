"""What a node has once it is in a swarm, before it trains."""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.clock import Clock
from bt_p2p.corpus.corpus import Corpus
from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.process import SwarmPeer
from node.http.place import HttpPlace
from node.manners.manners import Manners
from node.rebuild import Supervisor
from node.receipts import ReceiptBook
from node.record import NodeRecord
from node.state_dir import StateDir


@dataclass(frozen=True, kw_only=True, slots=True)
class Joined:
    """A peer that has entered a swarm, and what it brings."""

    manifest: RunManifest
    corpus: Corpus
    peer: SwarmPeer
    directory: Directory
    state_dir: StateDir
    record: NodeRecord
    receipts: ReceiptBook
    clock: Clock
    block: int | None
    """The block the user chose; None leaves it to the swarm."""
    span: range | None
    """Blocks to serve; the one to train is among them. None serves that one alone."""
    device: str
    num_parts: int
    """Parts in which a step is done, so that its batch fits into memory."""
    max_rounds: int | None
    http: HttpPlace | None
    """Where figures and health are told; None for nowhere."""
    is_first: bool
    """Nobody else was there to enter through when the user started the node."""
    supervisor: Supervisor
    manners: Manners
    membership: bytes | None
    """Of a closed run."""
    initial_peers: tuple[PeerAddress, ...]
    """Peers that the user named; dialled again after an outage."""
