"""What one stranger may take of a server: streams, requests, memory, and how fast.

Peer ids cost nothing, so a quota keeps one greedy or broken peer from shutting out the others; it does
not stop somebody with many ids, and the totals keep the server alive then.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from bt_p2p.clock import Clock
from bt_p2p.errors import BusyError, ConfigError
from bt_p2p.protocol.limits import (
    MALFORMED_PENALTY_S,
    MAX_BODIES_SIZE_BYTES,
    MAX_CONCURRENT_REQUESTS,
    MAX_MALFORMED_MESSAGES,
    MAX_OPEN_STREAMS,
    MAX_PEER_BYTES_PER_S,
    MAX_PEER_REQUESTS_PER_S,
    MAX_QUOTA_PEERS,
    PEER_BURST_S,
)

_PEER_SHARE = 0.25
_LEAST_SHARE = 4
"""A share is at least so many, or all if there are fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaLimits:
    """What all peers may have together; each may have a quarter. Rates are of each peer."""

    max_streams: int = MAX_OPEN_STREAMS
    max_requests: int = MAX_CONCURRENT_REQUESTS
    max_bodies_size_bytes: int = MAX_BODIES_SIZE_BYTES
    """Bodies of requests that are received or answered."""
    requests_per_s: float = MAX_PEER_REQUESTS_PER_S
    bytes_per_s: float = MAX_PEER_BYTES_PER_S
    burst_s: float = PEER_BURST_S
    """A peer that was quiet may take so many seconds' worth at once."""
    max_malformed: int = MAX_MALFORMED_MESSAGES
    """Within `penalty_s`."""
    penalty_s: float = MALFORMED_PENALTY_S
    """A peer that sent more is refused for so long."""
    max_peers: int = MAX_QUOTA_PEERS
    """That are remembered."""

    def __post_init__(self) -> None:
        if min(self.requests_per_s, self.bytes_per_s, self.burst_s, self.penalty_s) <= 0:
            raise ConfigError(f"rates and durations of quotas must be above 0: {self}")


class _Bucket:
    """So much a second, and after quiet times more at once."""

    def __init__(self, rate_per_s: float, capacity: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._capacity = capacity
        self._level = capacity
        self._at_s = now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """How long until that much can be taken; 0 if it can be taken now, inf if never."""
        self._level = min(self._capacity, self._level + (now_s - self._at_s) * self._rate_per_s)
        self._at_s = now_s
        if amount <= self._level:
            return 0.0
        if amount > self._capacity:
            return math.inf
        return (amount - self._level) / self._rate_per_s

    def take(self, amount: float, now_s: float) -> bool:
        """Take that much, or nothing."""
        if self.wait_s(amount, now_s) > 0:
            return False
        self._level -= amount
        return True


class _Peer:
    """What one peer has now."""

    def __init__(self, limits: QuotaLimits, now_s: float) -> None:
        self.num_streams = 0
        self.num_requests = 0
        self.num_memories = 0
        self.size_bytes = 0
        self.requests = _Bucket(
            limits.requests_per_s, max(1.0, limits.requests_per_s * limits.burst_s), now_s
        )
        self.bytes = _Bucket(limits.bytes_per_s, limits.bytes_per_s * limits.burst_s, now_s)
        self.malformed = _Bucket(
            limits.max_malformed / limits.penalty_s, float(limits.max_malformed), now_s
        )
        self.refused_until_s = -math.inf

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing."""
        return not (self.num_streams or self.num_requests or self.num_memories)


class Memory:
    """The body of one request, as far as it is here."""

    def __init__(self, quotas: Quotas, peer_id: str) -> None:
        """Use `Quotas.memory`."""
        self._quotas = quotas
        self._peer_id = peer_id
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Room for some more bytes, before they are read.

        Raises:
            BusyError: there is none, or the peer sends too fast; says why.
        """
        self._quotas._take_memory(self._peer_id, size_bytes)
        self.size_bytes += size_bytes


class Quotas:
    """Counts what each peer has; use it on one thread.

    Every method raises BusyError, whose text may be sent to the peer, for what it refuses.
    """

    def __init__(self, limits: QuotaLimits, clock: Clock) -> None:
        """Nobody has anything yet."""
        self._limits = limits
        self._clock = clock
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self.num_streams = 0
        self.num_requests = 0
        self.size_bytes = 0

    @contextlib.contextmanager
    def stream(self, peer_id: str) -> Iterator[None]:
        """One open stream."""
        peer = self._admitted(peer_id)
        limit = self._limits.max_streams
        _check_room("streams open", peer.num_streams, self.num_streams, limit)
        peer.num_streams += 1
        self.num_streams += 1
        try:
            yield
        finally:
            peer.num_streams -= 1
            self.num_streams -= 1

    @contextlib.contextmanager
    def request(self, peer_id: str) -> Iterator[None]:
        """One request that is answered."""
        peer = self._admitted(peer_id)
        limit = self._limits.max_requests
        _check_room("requests at once", peer.num_requests, self.num_requests, limit)
        if not peer.requests.take(1, self._clock.monotonic_s()):
            raise BusyError(
                f"busy: over {self._limits.requests_per_s:g} requests of yours in a second; slow down"
            )
        peer.num_requests += 1
        self.num_requests += 1
        try:
            yield
        finally:
            peer.num_requests -= 1
            self.num_requests -= 1

    @contextlib.contextmanager
    def memory(self, peer_id: str) -> Iterator[Memory]:
        """Room for one request; all of it is free again afterwards."""
        peer = self._admitted(peer_id)
        memory = Memory(self, peer_id)
        peer.num_memories += 1
        try:
            yield memory
        finally:
            peer.num_memories -= 1
            peer.size_bytes -= memory.size_bytes
            self.size_bytes -= memory.size_bytes

    def blame(self, peer_id: str) -> None:
        """Note a malformed message; a peer that sends many is refused for a while."""
        now_s = self._clock.monotonic_s()
        peer = self._find(peer_id)
        if not peer.malformed.take(1, now_s):
            peer.refused_until_s = now_s + self._limits.penalty_s

    def _take_memory(self, peer_id: str, size_bytes: int) -> None:
        peer = self._admitted(peer_id)
        limit = self._limits.max_bodies_size_bytes
        if size_bytes > _share(limit) - peer.size_bytes:
            raise BusyError(
                f"busy: your requests take {peer.size_bytes} bytes, allowed are {_share(limit)}; wait "
                f"for their answers"
            )
        if size_bytes > limit - self.size_bytes:
            raise BusyError(f"busy: all requests take {self.size_bytes} bytes; ask another holder")
        if not peer.bytes.take(size_bytes, self._clock.monotonic_s()):
            raise BusyError(
                f"busy: over {self._limits.bytes_per_s:g} bytes of yours in a second; slow down"
            )
        peer.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def _admitted(self, peer_id: str) -> _Peer:
        peer = self._find(peer_id)
        wait_s = peer.refused_until_s - self._clock.monotonic_s()
        if wait_s > 0:
            raise BusyError(
                f"refused for {wait_s:.0f} s more: over {self._limits.max_malformed} malformed "
                f"messages of yours; update your node"
            )
        return peer

    def _find(self, peer_id: str) -> _Peer:
        """What is known of a peer; who was here least lately is forgotten for a new one."""
        peer = self._peers.get(peer_id)
        if peer is None:
            if len(self._peers) >= self._limits.max_peers:
                self._forget_one()
            peer = self._peers[peer_id] = _Peer(self._limits, self._clock.monotonic_s())
        self._peers.move_to_end(peer_id)
        return peer

    def _forget_one(self) -> None:
        """The one that was here least lately and has nothing; better one that is not refused."""
        now_s = self._clock.monotonic_s()
        idle = [peer_id for peer_id, peer in self._peers.items() if peer.is_idle]
        if not idle:
            raise BusyError("busy: too many peers at once; ask another holder")
        free = (each for each in idle if self._peers[each].refused_until_s <= now_s)
        del self._peers[next(free, idle[0])]


def _share(limit: int) -> int:
    return max(min(_LEAST_SHARE, limit), int(limit * _PEER_SHARE))


def _check_room(what: str, of_peer: int, of_all: int, limit: int) -> None:
    if of_peer >= _share(limit):
        raise BusyError(f"busy: {of_peer} {what} are yours, allowed are {_share(limit)}")
    if of_all >= limit:
        raise BusyError(f"busy: {of_all} {what} in all; ask another holder")
