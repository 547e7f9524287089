"""The chunks of one snapshot, from all donors that have it at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from bt_p2p.chain.block_rpc import BlockClient
from bt_p2p.chain.weights_offer import ChunkRequest, WeightsOffer
from bt_p2p.clock import Clock
from bt_p2p.errors import PeerError, ProtocolError
from bt_p2p.protocol.limits import READ_TIMEOUT_S
from node.chunk_board import ChunkBoard
from node.download_meter import DownloadMeter
from node.partial_download import PartialFiles

_CHUNKS_AT_ONCE = 2
"""Asked of one donor, so that one is on its way while the other is asked for."""
_LOOK_S = 0.1
"""A donor that has nothing to do looks this often whether another one is slow."""


class SnapshotFetch:
    """One attempt at one snapshot.

    Attributes:
        data: the snapshot, as far as it is there.
        gave: chunks by donor.
        left: donors that failed, and how.
    """

    def __init__(
        self,
        client: BlockClient,
        offer: WeightsOffer,
        *,
        run_id: str,
        block: int,
        meter: DownloadMeter,
        partial: PartialFiles | None,
        clock: Clock,
    ) -> None:
        """Fetch nothing yet.

        Args:
            client: asks donors.
            offer: the snapshot.
            run_id: of the run.
            block: of which block.
            meter: is told how far it is.
            partial: where chunks are kept; None keeps none.
            clock: tells slow donors.
        """
        self.data = bytearray(offer.size_bytes)
        self.gave: Counter[str] = Counter()
        self.left: dict[str, PeerError | ProtocolError] = {}
        self._client = client
        self._offer = offer
        self._run_id = run_id
        self._block = block
        self._meter = meter
        self._partial = partial
        self._clock = clock

    async def run(self, peer_ids: Sequence[str]) -> bool:
        """Fetch what is not there yet; whether all is there now."""
        there: set[int] = set()
        if self._partial is not None:
            there = await asyncio.to_thread(self._partial.open, self._offer, self.data)
        missing = [index for index in range(self._offer.num_chunks) if index not in there]
        board = ChunkBoard(missing)
        self._meter.begin(
            size_bytes=self._offer.size_bytes,
            kept_bytes=sum(len(self.data[self._offer.chunk_slice(index)]) for index in there),
            num_donors=len(peer_ids),
        )
        asking = {
            asyncio.create_task(self._ask(peer_id, board))
            for peer_id in peer_ids
            for _ in range(_CHUNKS_AT_ONCE)
        }
        try:
            running = asking
            while running and not board.is_complete:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return board.is_complete

    async def _ask(self, peer_id: str, board: ChunkBoard) -> None:
        """Chunk after chunk from one donor, until all are there or it fails."""
        while not board.is_complete and peer_id not in self.left:
            index = board.take(peer_id, self._clock.monotonic_s())
            if index is None:
                await asyncio.sleep(_LOOK_S)
                continue
            request = ChunkRequest(
                run_id=self._run_id, block=self._block, offer=self._offer, index=index
            )
            try:
                chunk = await self._client.weights_chunk(peer_id, request, timeout_s=READ_TIMEOUT_S)
            except (PeerError, ProtocolError) as exc:
                board.failed(index, peer_id)
                if peer_id not in self.left:
                    self.left[peer_id] = exc
                    self._meter.num_donors -= 1
                return
            if self._partial is not None:
                await asyncio.to_thread(self._partial.write, self._offer, index, chunk)
            if board.arrived(index, peer_id, self._clock.monotonic_s()):
                self.data[self._offer.chunk_slice(index)] = chunk
                self.gave[peer_id] += 1
                self._meter.fetched_bytes += len(chunk)
