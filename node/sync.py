"""How a newcomer, or a node that was away, gets a block's current weights from its replicas.

Replicas that averaged with each other offer the same snapshot, by its hash. Its chunks are fetched from
all of them at once; each is checked when it comes. A donor that goes away, lies or is slow is left, and
its chunks come from the others. If none is left, nothing of that snapshot is used, and the download
begins again with another one: two snapshots are never mixed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from bt_p2p.chain.block_rpc import BlockClient
from bt_p2p.chain.weights_offer import WeightsOffer
from bt_p2p.clock import Clock, SystemClock
from bt_p2p.errors import PeerBusyError, PeerError, ProtocolError, SwarmError
from bt_p2p.model.wire import TensorSpec, decode_tensors, max_encoded_size_bytes
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import MAX_ROUND_LAG, READ_TIMEOUT_S
from bt_p2p.protocol.overview import SwarmOverview
from node.download_meter import DownloadMeter
from node.partial_download import PartialFiles
from node.snapshot_fetch import SnapshotFetch

logger = logging.getLogger(__name__)

MAX_DONORS = 8
"""Replicas that are asked for offers."""
_OFFER_GRACE_S = 2.0
"""Offers that come later than this after the first are not waited for."""
_MAX_BEHIND = 1
"""Rounds by which a snapshot may be behind the newest, if more donors have it."""
_BUSY_RETRY_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncedWeights:
    """Weights of a replica, checked."""

    weights: dict[str, Tensor]
    round_index: int
    peer_ids: tuple[str, ...]
    """Who gave chunks, most of them first; empty if all were kept from an earlier attempt."""
    left: tuple[str, ...] = ()
    """Donors that were left, each with its reason."""

    @property
    def source(self) -> str:
        """Who gave them, in words."""
        return " and ".join(map(short_peer_id, self.peer_ids)) or "an earlier download"


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadOptions:
    """How a download is kept and shown."""

    meter: DownloadMeter | None = None
    """Is told how far it is."""
    partial: PartialFiles | None = None
    """Where chunks are kept, to go on after a restart; None keeps none."""
    patience_s: float = 0.0
    """How long to wait while all donors are busy with others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """An offer, and all donors that made it."""

    offer: WeightsOffer
    peer_ids: tuple[str, ...]


def donors(overview: SwarmOverview, *, block: int, peer_id: str, round_index: int) -> list[Lease]:
    """Other replicas of a block that are ahead of a round, the newest first."""
    return [
        lease
        for lease in overview.blocks[block].holders
        if lease.peer_id != peer_id
        and lease.state == "training"
        and lease.round_index > round_index
    ]


def snapshots_to_try(
    offers: Mapping[str, Sequence[WeightsOffer]], *, min_round_index: int
) -> list[Snapshot]:
    """All snapshots that are new enough, the best first.

    Best is the one that most donors have, among those of the newest round and of the round before: a
    donor that has just ended a round still has the snapshot of the one before. After these come the
    others, the newest first.

    Args:
        offers: by donor.
        min_round_index: older snapshots are of no use.
    """
    made: dict[bytes, tuple[WeightsOffer, list[str]]] = {}
    for peer_id, theirs in offers.items():
        for offer in theirs:
            if offer.round_index >= min_round_index:
                made.setdefault(offer.offer_id, (offer, []))[1].append(peer_id)
    found = [Snapshot(offer=offer, peer_ids=tuple(peers)) for offer, peers in made.values()]
    newest = max((each.offer.round_index for each in found), default=0)

    def rank(snapshot: Snapshot) -> tuple[bool, int, int, bytes]:
        round_index = snapshot.offer.round_index
        is_new = round_index >= newest - _MAX_BEHIND
        num_donors = len(snapshot.peer_ids) if is_new else 0
        return (is_new, num_donors, round_index, snapshot.offer.offer_id)

    return sorted(found, key=rank, reverse=True)


async def fetch_weights(
    client: BlockClient,
    candidates: Sequence[Lease],
    *,
    expected: Mapping[str, TensorSpec],
    min_round_index: int,
    options: DownloadOptions | None = None,
    clock: Clock | None = None,
) -> SyncedWeights:
    """Download a block, whole, valid and new enough, from all replicas that have the same weights.

    Raises:
        SwarmError: none gives it; names each with its reason.
    """
    download = _Download(client, expected, options or DownloadOptions(), clock or SystemClock())
    return await download.run(candidates, min_round_index=min_round_index)


class _Download:
    """One call of `fetch_weights`."""

    def __init__(
        self,
        client: BlockClient,
        expected: Mapping[str, TensorSpec],
        options: DownloadOptions,
        clock: Clock,
    ) -> None:
        self._client = client
        self._expected = expected
        self._options = options
        self._clock = clock
        self._meter = options.meter or DownloadMeter(clock)
        self._reasons: dict[str, str] = {}
        """By donor, why it was left or gave nothing."""
        self._liars: set[str] = set()
        """Donors of which nothing more is taken."""
        self._busy: set[str] = set()

    async def run(self, candidates: Sequence[Lease], *, min_round_index: int) -> SyncedWeights:
        """Ask, choose, fetch; while all are busy, again."""
        give_up_at_s = self._clock.monotonic_s() + self._options.patience_s
        while True:
            self._reasons.clear()
            self._busy.clear()
            found = await self._try_all(candidates[:MAX_DONORS], min_round_index)
            if found is not None:
                return found
            is_patient = self._clock.monotonic_s() < give_up_at_s
            if not self._busy or not is_patient:
                break
            self._meter.waits_for = f"all replicas with new weights are busy ({self._told()})"
            await asyncio.sleep(_BUSY_RETRY_S)
        raise SwarmError(
            f"no replica gave its weights ({self._told() or 'none is ahead'}); try again later"
        )

    async def _try_all(
        self, candidates: Sequence[Lease], min_round_index: int
    ) -> SyncedWeights | None:
        offers = await self._collect_offers(candidates)
        for peer_id, theirs in offers.items():
            newest = max(offer.round_index for offer in theirs)
            if newest < min_round_index:
                self._reasons[peer_id] = f"serves only round {newest}"
        snapshots = snapshots_to_try(offers, min_round_index=min_round_index)
        partial = self._options.partial
        if partial is not None:
            newest = max((each.offer.round_index for each in snapshots), default=0)
            snapshots.sort(
                key=lambda each: (
                    not partial.has(each.offer) or newest - each.offer.round_index > MAX_ROUND_LAG
                )
            )
        for snapshot in snapshots:
            honest = [peer for peer in snapshot.peer_ids if peer not in self._liars]
            lease = next((each for each in candidates if each.peer_id in honest), None)
            if lease is None:
                continue
            assert lease.block is not None
            honest_snapshot = replace(snapshot, peer_ids=tuple(honest))
            found = await self._fetch(honest_snapshot, lease.run_id, lease.block)
            if found is not None:
                return found
        return None

    async def _collect_offers(
        self, candidates: Sequence[Lease]
    ) -> dict[str, tuple[WeightsOffer, ...]]:
        """What the donors offer that answer soon."""
        asked = {
            lease.peer_id: asyncio.create_task(self._ask_offers(lease))
            for lease in candidates
            if lease.peer_id not in self._liars
        }
        waiting, end_s = set(asked.values()), float("inf")
        try:
            while waiting and self._clock.monotonic_s() < end_s:
                left_s = min(READ_TIMEOUT_S, end_s - self._clock.monotonic_s())
                done, waiting = await asyncio.wait(
                    waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if any(task.result() for task in done):
                    end_s = min(end_s, self._clock.monotonic_s() + _OFFER_GRACE_S)
        finally:
            for task in asked.values():
                task.cancel()
        offers = {}
        for peer_id, task in asked.items():
            if not task.done():
                self._reasons[peer_id] = "offers nothing in time"
            elif task.result():
                offers[peer_id] = task.result()
        return offers

    async def _ask_offers(self, lease: Lease) -> tuple[WeightsOffer, ...]:
        """Empty if it makes none; then the reason is noted."""
        assert lease.block is not None
        try:
            return await self._client.weights_offers(
                lease.peer_id,
                run_id=lease.run_id,
                block=lease.block,
                max_size_bytes=max_encoded_size_bytes(self._expected),
                timeout_s=READ_TIMEOUT_S,
            )
        except (PeerError, ProtocolError) as exc:
            self._leave(lease.peer_id, exc)
            return ()

    async def _fetch(self, snapshot: Snapshot, run_id: str, block: int) -> SyncedWeights | None:
        """The weights of one snapshot, from donors that all have it; None if it cannot be had."""
        fetch = SnapshotFetch(
            self._client,
            snapshot.offer,
            run_id=run_id,
            block=block,
            meter=self._meter,
            partial=self._options.partial,
            clock=self._clock,
        )
        is_whole = await fetch.run(snapshot.peer_ids)
        for peer_id, error in fetch.left.items():
            self._leave(peer_id, error)
        if not is_whole:
            return None
        try:
            weights = await asyncio.to_thread(decode_tensors, bytes(fetch.data), self._expected)
        except ProtocolError as exc:  # all who offered these bytes offer something else
            for peer_id in snapshot.peer_ids:
                self._leave(peer_id, exc)
            return None
        finally:
            if self._options.partial is not None:
                await asyncio.to_thread(self._options.partial.clear)
        return SyncedWeights(
            weights=weights,
            round_index=snapshot.offer.round_index,
            peer_ids=tuple(peer_id for peer_id, _ in fetch.gave.most_common()),
            left=tuple(self._told_each()),
        )

    def _leave(self, peer_id: str, error: PeerError | ProtocolError) -> None:
        """Note why a donor gives nothing more of what it was asked for."""
        self._reasons[peer_id] = str(error)
        if isinstance(error, PeerBusyError):
            self._busy.add(peer_id)
        if isinstance(error, ProtocolError):
            self._liars.add(peer_id)
        logger.info("donor %s is left: %s", short_peer_id(peer_id), error)

    def _told(self) -> str:
        return "; ".join(self._told_each())

    def _told_each(self) -> list[str]:
        return [f"{short_peer_id(peer)}: {reason}" for peer, reason in self._reasons.items()]
