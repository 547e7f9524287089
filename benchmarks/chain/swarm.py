"""Holders of all blocks of a run behind relays, and a client, on this machine."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from benchmarks.chain.child import Child, family_cpu_s, own_cpu_s
from benchmarks.chain.config import Link
from benchmarks.chain.holder import HolderSpec
from benchmarks.chain.timing import TimedSession, smallest_request
from benchmarks.ports import free_port
from bt_p2p.chain.modes import Precision
from bt_p2p.clock import SystemClock
from bt_p2p.errors import PeerError
from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.limits import LEASE_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from bt_p2p.swarm.block_rpc import HivemindBlockClient
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer

_START_TIMEOUT_S = 180.0
_RELAY_TIMEOUT_S = 20.0
_PROBE_TIMEOUT_S = 20.0
_PAUSE_S = 0.2

T = TypeVar("T")


class ChainSwarm:
    """Use `chain_swarm`.

    Attributes:
        manifest: of the run.
        holders: peer id -> program.
        blocks: peer id -> the block it holds.
    """

    def __init__(
        self,
        manifest: RunManifest,
        folder: Path,
        weights: Sequence[Path] | None,
        *,
        is_relayed: bool,
    ) -> None:
        self.manifest = manifest
        self.holders: dict[str, Child] = {}
        self.blocks: dict[str, int] = {}
        self._folder = folder
        self._weights = weights
        self._specs: dict[str, HolderSpec] = {}
        self._is_relayed = is_relayed
        self._relay: Child | None = None
        self._peer: SwarmPeer | None = None
        self._block_client: HivemindBlockClient | None = None

    def start(self, replicas: int) -> None:
        """Start everything and ask each holder once."""
        blocks = [*range(self.manifest.model.num_blocks)] * replicas
        ports = [free_port() for _ in blocks]
        announced = ports
        if self._is_relayed:
            self._relay = self._child("relay", map(str, ports))
            announced = self._relay.hear(timeout_s=_RELAY_TIMEOUT_S)
        waiting: list[tuple[HolderSpec, str, Child]] = []
        for index, block in enumerate(blocks):
            identity, path = PeerIdentity.generate(), self._folder / f"{index}.key"
            identity.save(path)
            spec = HolderSpec(
                manifest=self.manifest,
                block=block,
                weights_path=None if self._weights is None else self._weights[block],
                identity_path=path,
                port=ports[index],
                announced_port=announced[index],
                initial_peers=() if not waiting else (_address(*waiting[0][:2]),),
            )
            child = self._child("holder")
            self.holders[identity.peer_id] = child
            self.blocks[identity.peer_id] = block
            self._specs[identity.peer_id] = spec
            waiting.append((spec, identity.peer_id, child))
        for some in (waiting[:1], waiting[1:]):  # the others enter through the first
            for spec, _, child in some:
                child.tell(spec.model_dump_json())
            for _, _, child in some:
                child.hear(timeout_s=_START_TIMEOUT_S)
        addresses = [_address(spec, peer_id) for spec, peer_id, _ in waiting]
        self._peer = start_peer(
            PeerOptions(initial_peers=tuple(parse_peer_addresses(addresses)), is_client=True)
        )
        self._block_client = HivemindBlockClient(self._peer.p2p)
        for peer_id in self.holders:
            self.wait_ready(peer_id)

    def stop(self) -> None:
        """End all programs; idempotent."""
        if self._peer is not None:
            self._peer.stop()
        children = [*self.holders.values(), *([self._relay] if self._relay else [])]
        for child in children:
            child.ask_to_end()
        for child in children:
            child.end()

    def set_link(self, link: Link) -> None:
        """Between each holder and everybody else from now on."""
        assert self._relay is not None
        self._relay.tell(json.dumps(link.model_dump()))
        self._relay.hear(timeout_s=_RELAY_TIMEOUT_S)

    def session(self, precision: Precision = "float32") -> TimedSession:
        """A new session of the one client, which knows nothing of any holder's speed."""
        assert self._block_client is not None
        return TimedSession(self.manifest, self._block_client, self.overview, precision=precision)

    def overview(self) -> SwarmOverview:
        """What the holders would announce."""
        now_s = SystemClock().now_s()
        leases = tuple(
            Lease(
                run_id=self.manifest.run_id,
                peer_id=peer_id,
                boot_id="benchmark",
                block=block,
                state="training",
                addresses=[_address(self._specs[peer_id], peer_id)],
                issued_at_s=now_s,
                expires_at_s=now_s + LEASE_TTL_S,
            )
            for peer_id, block in self.blocks.items()
        )
        return make_overview(self.manifest, LeaseView(leases=leases, num_invalid=0), now_s=now_s)

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout_s: float) -> T:
        """Run on the loop of the client."""
        return self._client.loop.run(coroutine, timeout_s=timeout_s)

    def kill(self, peer_id: str) -> None:
        """`kill -9` of a holder's program; its daemon notices."""
        self.holders[peer_id].kill()

    def freeze(self, peer_id: str) -> None:
        """SIGSTOP to a holder's program; its daemon goes on, so its connections stay."""
        self.holders[peer_id].freeze()

    def revive(self, peer_id: str) -> None:
        """Bring a killed or frozen holder back, with its identity, and wait until it answers."""
        if not self.holders[peer_id].is_killed:
            self.holders[peer_id].thaw()
        else:
            self.holders[peer_id].end()  # its port must be free
            other = next(spec for spec in self._specs.items() if spec[0] != peer_id)
            update = {"initial_peers": (_address(other[1], other[0]),)}
            child = self.holders[peer_id] = self._child("holder")
            child.tell(self._specs[peer_id].model_copy(update=update).model_dump_json())
            child.hear(timeout_s=_START_TIMEOUT_S)
        self.wait_ready(peer_id)

    def wait_ready(self, peer_id: str) -> None:
        """Ask a holder until it answers.

        Raises:
            PeerError: it does not, for a long time.
        """
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        client = HivemindBlockClient(self._client.p2p)
        while True:
            asking = smallest_request(self.manifest, self.blocks[peer_id], client, peer_id)
            try:
                self.run(asking, timeout_s=_PROBE_TIMEOUT_S)
            except PeerError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_PAUSE_S)
            else:
                self.holders[peer_id].note_family()
                return

    def ask(self) -> float:
        """The smallest request there is, to the first holder; milliseconds beyond computing."""
        peer_id = next(iter(self.holders))
        assert self._block_client is not None
        asking = smallest_request(self.manifest, self.blocks[peer_id], self._block_client, peer_id)
        return self.run(asking, timeout_s=_PROBE_TIMEOUT_S)

    def num_bypasses(self) -> int:
        """Open connections of holders and client that do not go through the relays; 0 without."""
        if self._relay is None:
            return 0
        relayed = set(_connections(self._relay.pid))
        pids = [child.pid for child in self.holders.values()]
        found = [pair for pid in (*pids, self._client.dht.pid) for pair in _connections(pid)]
        return sum((far, near) not in relayed for near, far in found)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far: of this program, the holders, all daemons, and the relays."""
        holders = [
            (own_cpu_s(child.pid), family_cpu_s(child.pid)) for child in self.holders.values()
        ]
        own_s, all_s = (sum(times) for times in zip(*holders, strict=True))
        return {
            "client": time.process_time(),
            "holders": own_s,
            "daemons": all_s - own_s + family_cpu_s(self._client.dht.pid),
            "relays": 0.0 if self._relay is None else family_cpu_s(self._relay.pid),
        }

    @property
    def _client(self) -> SwarmPeer:
        assert self._peer is not None
        return self._peer

    def _child(self, name: str, arguments: Iterator[str] | None = None) -> Child:
        return Child(f"benchmarks.chain.{name}", arguments or (), self._folder / f"{name}.log")


@contextlib.contextmanager
def chain_swarm(
    manifest: RunManifest,
    folder: Path,
    *,
    weights: Sequence[Path] | None = None,
    replicas: int = 1,
    is_relayed: bool = True,
) -> Iterator[ChainSwarm]:
    """Start holders of all blocks; all programs are ended at the end.

    Args:
        manifest: of the run.
        folder: for key files and output, which must be there.
        weights: of each block; None is the initial weights.
        replicas: holders of each block.
        is_relayed: whether a link can be set; else holders are dialled as they are.

    Raises:
        SwarmError: a program does not start.
    """
    swarm = ChainSwarm(manifest, folder, weights, is_relayed=is_relayed)
    try:
        swarm.start(replicas)
        yield swarm
    finally:
        swarm.stop()


def _address(spec: HolderSpec, peer_id: str) -> str:
    return f"/ip4/127.0.0.1/tcp/{spec.announced_port}/p2p/{peer_id}"


def _connections(pid: int) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """Near and far end of all open TCP connections of a process and its children."""
    main = psutil.Process(pid)
    return [
        (tuple(one.laddr), tuple(one.raddr))
        for process in (main, *main.children(recursive=True))
        for one in process.net_connections(kind="tcp")
        if one.status == psutil.CONN_ESTABLISHED
    ]
