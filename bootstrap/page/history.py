"""The loss of the blocks of a run, round after round, as long as somebody watched."""

from __future__ import annotations

import statistics

from bt_p2p.protocol.overview import BlockOverview, SwarmOverview

MAX_POINTS = 256
"""Kept of each block; older rounds are kept at half the density, and again half."""
MAX_RUN_POINTS = 4096
"""Kept of all blocks of a run together."""


def block_round(block: BlockOverview) -> int | None:
    """The round of a block: half of its holders are there, so that one liar moves nothing."""
    return statistics.median_low(rounds) if (rounds := _rounds(block)) else None


def block_loss(block: BlockOverview) -> float | None:
    """The median of the losses that its holders report, nats per byte."""
    losses = [lease.loss for lease in block.holders if lease.loss is not None]
    return statistics.median(losses) if losses else None


def _rounds(block: BlockOverview) -> list[int]:
    return [lease.round_index for lease in block.holders]


class LossHistory:
    """One curve for each block, with a cap on its size."""

    def __init__(self, num_blocks: int) -> None:
        """Nothing seen yet."""
        self._max_points = min(MAX_POINTS, max(2, MAX_RUN_POINTS // num_blocks))
        self._points: dict[int, list[tuple[int, float]]] = {}

    def see(self, overview: SwarmOverview) -> None:
        """Take in a view: of a round its newest loss counts; who goes back in rounds starts there."""
        for block in overview.blocks:
            loss, round_index = block_loss(block), block_round(block)
            if loss is None or round_index is None:
                continue
            before = self._points.get(block.index, [])
            points = [point for point in before if point[0] < round_index]
            if len(points) >= self._max_points:
                points = points[::2]
            self._points[block.index] = [*points, (round_index, loss)]

    def points(self, block: int) -> list[tuple[int, float]]:
        """Round and loss of a block, oldest first."""
        return list(self._points.get(block, []))
