"""Trends: what the losses of blocks did while somebody watched; leases tell only the present."""

from __future__ import annotations

from collections import deque

from bt_p2p.protocol.overview import SwarmOverview

MAX_VALUES = 60
"""Kept of each block."""


class Trends:
    """The losses of all blocks, one value for each round seen."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._rounds: dict[int, int] = {}
        self._losses: dict[int, deque[float]] = {}
        self._run_id = ""

    def see(self, overview: SwarmOverview) -> None:
        """Take in a view; within a round its newest loss counts, another run starts afresh."""
        if overview.manifest.run_id != self._run_id:
            self._run_id = overview.manifest.run_id
            self._rounds.clear()
            self._losses.clear()
        for block in overview.blocks:
            loss, round_index = block.loss, block.round_index
            if loss is None or round_index is None:
                continue
            losses = self._losses.setdefault(block.index, deque(maxlen=MAX_VALUES))
            if losses and round_index <= self._rounds[block.index]:
                losses[-1] = loss
            else:
                losses.append(loss)
                self._rounds[block.index] = round_index

    def losses(self) -> dict[int, list[float]]:
        """Block -> its losses, oldest first."""
        return {index: list(losses) for index, losses in self._losses.items()}
