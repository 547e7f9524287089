"""Copies of the earlier blocks for `cascade`, refreshed from the swarm while training goes on."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import torch

from bt_p2p.chain.block_rpc import BlockClient
from bt_p2p.errors import SwarmError
from bt_p2p.model.block import weight_specs
from bt_p2p.model.upstream import UpstreamStack
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from node.sync import SyncedWeights, donors, fetch_weights

logger = logging.getLogger(__name__)

Download = concurrent.futures.Future[SyncedWeights]
StartDownload = Callable[[Coroutine[Any, Any, SyncedWeights]], Download]


def old_copies(
    rounds: list[int | None], overview: SwarmOverview, *, refresh_rounds: int
) -> list[int]:
    """Which copies to fetch now: those missing, and those at least `refresh_rounds` behind.

    A block that nobody holds is not among them: an older copy, or none, does until it is back.
    """
    old = []
    for index, copied_round in enumerate(rounds):
        newest = overview.blocks[index].round_index
        if newest is None:
            continue
        if copied_round is None or newest - copied_round >= refresh_rounds:
            old.append(index)
    return old


class UpstreamRefresher:
    """Keeps copies of the earlier blocks fresh. Called between rounds by the thread that trains.

    Attributes:
        stack: the copies, used by the trainer of the same thread; none unless the run is `cascade`.
        problem: why the last download failed; empty once one succeeds.
    """

    def __init__(
        self,
        manifest: RunManifest,
        block: int,
        device: torch.device,
        client: BlockClient,
        start: StartDownload,
        *,
        peer_id: str,
    ) -> None:
        """Wire the parts together.

        Args:
            manifest: the run.
            block: the one that trains on them.
            device: where it trains.
            client: downloads weights.
            start: runs a download elsewhere.
            peer_id: our own.
        """
        self._manifest = manifest
        num_copies = block if manifest.objective.name == "cascade" else 0
        self.stack = UpstreamStack(manifest, num_copies, device)
        self._client = client
        self._start = start
        self._peer_id = peer_id
        self._expected = weight_specs(manifest)
        self._downloads: dict[int, Download] = {}
        self.problem = ""

    def between_rounds(self, overview: SwarmOverview) -> list[int]:
        """Adopt what has arrived, and start to fetch what has become old; waits for nothing.

        Returns:
            Blocks of which there was no copy before.
        """
        missing = [index for index, copied in enumerate(self.stack.rounds) if copied is None]
        self._adopt_finished()
        refresh_rounds = self._manifest.objective.upstream_refresh_rounds
        for index in old_copies(self.stack.rounds, overview, refresh_rounds=refresh_rounds):
            if index in self._downloads:
                continue
            copied_round = self.stack.rounds[index]
            min_round_index = 0 if copied_round is None else copied_round + 1
            candidates = donors(
                overview, block=index, peer_id=self._peer_id, round_index=min_round_index - 1
            )
            self._downloads[index] = self._start(
                fetch_weights(
                    self._client,
                    candidates,
                    expected=self._expected,
                    min_round_index=min_round_index,
                )
            )
        return [index for index in missing if self.stack.rounds[index] is not None]

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
            self.stack.adopt(index, synced.weights, synced.round_index)
            self.problem = ""
