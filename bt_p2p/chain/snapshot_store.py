"""The snapshots of its weights that a holder gives to newcomers while it trains on.

A snapshot is made when somebody asks for it. It outlives its round as long as chunks of it are
fetched: else nobody whose download takes longer than a round would ever complete one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from bt_p2p.chain.weights_offer import WeightsOffer, make_offer
from bt_p2p.clock import Clock
from bt_p2p.errors import BusyError, WireFormatError
from bt_p2p.protocol.limits import (
    DOWNLOAD_IDLE_S,
    MAX_DOWNLOADS,
    MAX_OLD_SNAPSHOTS,
    MAX_OLD_SNAPSHOTS_SIZE_BYTES,
    SNAPSHOT_IDLE_S,
)


@dataclass(kw_only=True, slots=True)
class _Snapshot:
    offer: WeightsOffer
    data: bytes
    used_at_s: float


class SnapshotStore:
    """Snapshots of one block, the newest first. Safe for use from several threads."""

    def __init__(self, clock: Clock) -> None:
        """Keep nothing yet.

        Args:
            clock: tells who has not asked for long.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._snapshots: list[_Snapshot] = []
        self._is_current = False
        self._used_at_s: dict[str, float] = {}

    def replace(self) -> None:
        """The weights have changed: what is kept is old now."""
        with self._lock:
            self._is_current = False
            self._prune()

    def offers(self, round_index: int, encode: Callable[[], bytes]) -> tuple[WeightsOffer, ...]:
        """What can be had now, the newest first.

        Args:
            round_index: of the weights now.
            encode: makes the snapshot of the weights now, if there is none.
        """
        if not self._is_current:
            data = encode()
            offer = make_offer(data, round_index)
            with self._lock:
                now_s = self._clock.monotonic_s()
                self._snapshots.insert(0, _Snapshot(offer=offer, data=data, used_at_s=now_s))
                self._is_current = True
                self._prune()
        with self._lock:
            return tuple(snapshot.offer for snapshot in self._snapshots)

    def chunk(self, offer_id: bytes, index: int, *, asker: str) -> bytes:
        """A chunk of an offered snapshot.

        Raises:
            BusyError: others download already.
            WireFormatError: the snapshot is no longer there, or has no such chunk.
        """
        self.check_has_room(asker)
        with self._lock:
            for snapshot in self._snapshots:
                if snapshot.offer.offer_id == offer_id:
                    break
            else:
                raise WireFormatError(
                    "that snapshot of the weights is no longer kept; take the newest one"
                )
            if not 0 <= index < snapshot.offer.num_chunks:
                raise WireFormatError(f"the weights have no chunk {index}")
            snapshot.used_at_s = self._used_at_s[asker] = self._clock.monotonic_s()
            return snapshot.data[snapshot.offer.chunk_slice(index)]

    def check_has_room(self, asker: str) -> None:
        """Whether this peer may download now.

        Raises:
            BusyError: it may not; says why.
        """
        with self._lock:
            latest_s = self._clock.monotonic_s() - DOWNLOAD_IDLE_S
            self._used_at_s = {
                peer_id: at_s for peer_id, at_s in self._used_at_s.items() if at_s >= latest_s
            }
            if asker not in self._used_at_s and len(self._used_at_s) >= MAX_DOWNLOADS:
                raise BusyError(
                    f"busy: {MAX_DOWNLOADS} peers download from this one already; ask another"
                )

    def _prune(self) -> None:
        """Old snapshots go when nobody uses them, and when there are too many."""
        latest_s = self._clock.monotonic_s() - SNAPSHOT_IDLE_S
        current = self._snapshots[:1] if self._is_current else []
        old = [each for each in self._snapshots[len(current) :] if each.used_at_s >= latest_s]
        last_used = sorted(old, key=lambda each: each.used_at_s, reverse=True)
        kept: list[_Snapshot] = []
        for snapshot in last_used[:MAX_OLD_SNAPSHOTS]:
            size_bytes = sum(len(each.data) for each in (*kept, snapshot))
            if not kept or size_bytes <= MAX_OLD_SNAPSHOTS_SIZE_BYTES:
                kept.append(snapshot)
        self._snapshots = [*current, *(each for each in old if each in kept)]
