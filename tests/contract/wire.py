"""A caller and a holder for contract tests of block RPC, and a holder that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from bt_p2p.chain.block_rpc import (
    BlockClient,
    BlockService,
    ForwardReply,
    ForwardRequest,
)
from bt_p2p.chain.weights_offer import WeightsOffer
from bt_p2p.testing.tiny import tiny_identity

T = TypeVar("T")
TIMEOUT_S = 10.0
ASKER = "somebody"
NOT_THERE = tiny_identity(99).peer_id


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A caller and a holder that are different peers."""

    client: BlockClient
    caller_id: str
    serve: Callable[[BlockService], str]
    """Let the holder answer from a service; its peer id."""
    run: Callable[[Coroutine[Any, Any, T]], T]
    """Run the caller's coroutine with a deadline."""


class FailingService:
    """A holder that fails with an error, or takes an hour when there is none."""

    def __init__(self, error: Exception | None):
        self._error = error

    async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
        return await self._fail()

    async def weights_offers(
        self, run_id: str, block: int, *, asker: str
    ) -> tuple[WeightsOffer, ...]:
        return await self._fail()

    async def weights_chunk(
        self, run_id: str, block: int, offer_id: bytes, index: int, *, asker: str
    ) -> bytes:
        return await self._fail()

    async def _fail(self) -> Any:
        if self._error is None:
            await asyncio.sleep(3600)
        raise self._error
