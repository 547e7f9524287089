"""A block of the model at home, to guess with in mode `draft`."""

from __future__ import annotations

import asyncio
import logging

from bt_p2p.chain.block_rpc import BlockClient
from bt_p2p.chain.drafter import BlockDrafter, Drafter, RepeatDrafter
from bt_p2p.chain.holders import LookUp
from bt_p2p.clock import Clock
from bt_p2p.errors import SwarmError
from bt_p2p.model.block import Block, weight_specs
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from node.sync import fetch_weights

logger = logging.getLogger(__name__)

_MAX_AGE_S = 120.0
"""An older copy guesses worse, since the swarm trains on."""


def best_draft_block(overview: SwarmOverview) -> list[Lease]:
    """Holders of the block that predicts best alone, the newest first; empty if nobody trains.

    A block of `cascade` needs what the one before hands on, so only its block 0 will do.
    """
    usable = [
        [lease for lease in block.holders if lease.state == "training"]
        for block in overview.blocks[: 1 if overview.manifest.objective.name == "cascade" else None]
    ]
    held = [leases for leases in usable if leases]

    def loss(leases: list[Lease]) -> float:
        return min(lease.loss if lease.loss is not None else float("inf") for lease in leases)

    return min(held, key=loss) if held else []


class DraftBlock:
    """Fetches one block from a holder when first needed, and anew when it has become old.

    Attributes:
        source: in words, where guesses come from.
    """

    def __init__(
        self, manifest: RunManifest, client: BlockClient, look_up: LookUp, clock: Clock
    ) -> None:
        """Fetch nothing yet."""
        self._manifest = manifest
        self._client = client
        self._look_up = look_up
        self._clock = clock
        self._lock = asyncio.Lock()
        self._block: Block | None = None
        self._fetched_at_s = 0.0
        self.source = "the text itself"

    async def drafter(self) -> Drafter:
        """A drafter for one text; without a block to be had, one that repeats the text."""
        async with self._lock:
            is_old = self._clock.monotonic_s() - self._fetched_at_s > _MAX_AGE_S
            if self._block is None or is_old:
                try:
                    await self._fetch()
                except SwarmError as exc:
                    logger.info("no block to draft with: %s", exc)
            return RepeatDrafter() if self._block is None else BlockDrafter(self._block)

    async def _fetch(self) -> None:
        overview = await asyncio.to_thread(self._look_up)
        holders = best_draft_block(overview)
        block = Block(self._manifest.model, self._manifest.objective)
        synced = await fetch_weights(
            self._client, holders, expected=weight_specs(self._manifest), min_round_index=0
        )
        block.load_weights(synced.weights)
        self._block = block.eval().requires_grad_(False)
        self._fetched_at_s = self._clock.monotonic_s()
        self.source = (
            f"block {holders[0].block} at round {synced.round_index}, from {synced.source}"
        )
