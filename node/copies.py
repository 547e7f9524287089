"""Copies of blocks that others train, refreshed from the swarm while this node trains its own."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from torch import Tensor

from bt_p2p.chain.block_rpc import BlockClient
from bt_p2p.errors import SwarmError
from bt_p2p.model.block import weight_specs
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from node.sync import SyncedWeights, donors, fetch_weights

logger = logging.getLogger(__name__)

Download = concurrent.futures.Future[SyncedWeights]
StartDownload = Callable[[Coroutine[Any, Any, SyncedWeights]], Download]
Adopt = Callable[[int, Mapping[str, Tensor], int], None]
"""Takes block, weights and the rounds behind them."""


def old_copies(
    rounds: Mapping[int, int | None], overview: SwarmOverview, *, refresh_rounds: int
) -> list[int]:
    """Which copies to fetch now: those missing, and those at least `refresh_rounds` behind.

    A block that nobody holds is not among them: an older copy, or none, does until it is back.

    Args:
        rounds: by block, the rounds behind the copy; None for a missing one.
        overview: the swarm.
        refresh_rounds: how far a copy may fall behind.
    """
    old = []
    for index, copied_round in rounds.items():
        newest = overview.blocks[index].round_index
        if newest is None:
            continue
        if copied_round is None or newest - copied_round >= refresh_rounds:
            old.append(index)
    return old


class BlockCopies:
    """Keeps copies fresh. Called between rounds by the thread that trains.

    Attributes:
        rounds: by block, the rounds behind the copy; None while it is missing.
        problem: why the last download failed; empty once one succeeds.
        bytes_received: in all copies so far.
    """

    def __init__(
        self,
        manifest: RunManifest,
        blocks: Collection[int],
        adopt: Adopt,
        client: BlockClient,
        start: StartDownload,
        *,
        peer_id: str,
        refresh_rounds: int,
    ) -> None:
        """Fetch nothing yet.

        Args:
            manifest: the run.
            blocks: which to copy; may be none.
            adopt: puts a copy to its use, in the thread that calls `between_rounds`.
            client: downloads weights.
            start: runs a download elsewhere.
            peer_id: our own.
            refresh_rounds: how far a copy may fall behind.
        """
        self._specs = weight_specs(manifest)
        self._adopt = adopt
        self._client = client
        self._start = start
        self._peer_id = peer_id
        self._refresh_rounds = refresh_rounds
        self._downloads: dict[int, Download] = {}
        self.rounds: dict[int, int | None] = dict.fromkeys(blocks)
        self.problem = ""
        self.bytes_received = 0

    def between_rounds(self, overview: SwarmOverview) -> list[int]:
        """Adopt what has arrived, and start to fetch what has become old; waits for nothing.

        Returns:
            Blocks of which there was no copy before.
        """
        missing = [index for index, copied in self.rounds.items() if copied is None]
        self._adopt_finished()
        for index in old_copies(self.rounds, overview, refresh_rounds=self._refresh_rounds):
            if index in self._downloads:
                continue
            copied_round = self.rounds[index]
            min_round_index = 0 if copied_round is None else copied_round + 1
            candidates = donors(
                overview, block=index, peer_id=self._peer_id, round_index=min_round_index - 1
            )
            self._downloads[index] = self._start(
                fetch_weights(
                    self._client,
                    candidates,
                    expected=self._specs,
                    min_round_index=min_round_index,
                )
            )
        return [index for index in missing if self.rounds[index] is not None]

    def stop(self) -> None:
        """Give up what is on its way."""
        for download in self._downloads.values():
            download.cancel()
        self._downloads.clear()

    def _adopt_finished(self) -> None:
        for index, download in list(self._downloads.items()):
            if not download.done():
                continue
            del self._downloads[index]
            try:
                synced = download.result()
            except (SwarmError, concurrent.futures.CancelledError) as exc:
                self.problem = f"no fresh copy of block {index}: {exc}"
                logger.info("%s", self.problem)
                continue
            self._adopt(index, synced.weights, synced.round_index)
            self.rounds[index] = synced.round_index
            self.bytes_received += sum(
                tensor.numel() * tensor.element_size() for tensor in synced.weights.values()
            )
            self.problem = ""
