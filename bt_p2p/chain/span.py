"""Several blocks served by one peer."""

from __future__ import annotations

from collections.abc import Mapping

from bt_p2p.chain.block_rpc import (
    BlockService,
    ForwardReply,
    ForwardRequest,
    Readiness,
)
from bt_p2p.chain.weights_offer import WeightsOffer
from bt_p2p.errors import WireFormatError


class SpanService:
    """Gives each request to the service of its block; see `block_rpc.BlockService`."""

    def __init__(self, services: Mapping[int, BlockService]) -> None:
        """Wrap services by block; the mapping may change."""
        self._services = services

    async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
        """As the service of the block."""
        return await self._of(request.block).forward(request, asker=asker)

    async def weights_offers(
        self, run_id: str, block: int, *, asker: str
    ) -> tuple[WeightsOffer, ...]:
        """As the service of the block."""
        return await self._of(block).weights_offers(run_id, block, asker=asker)

    async def weights_chunk(
        self, run_id: str, block: int, offer_id: bytes, index: int, *, asker: str
    ) -> bytes:
        """As the service of the block."""
        return await self._of(block).weights_chunk(run_id, block, offer_id, index, asker=asker)

    def readiness(self, run_id: str, block: int) -> Readiness:
        """As the service of the block."""
        return self._of(block).readiness(run_id, block)

    def _of(self, block: int) -> BlockService:
        service = self._services.get(block)
        if service is None:
            served = ", ".join(str(index) for index in sorted(self._services))
            raise WireFormatError(f"this peer serves block {served}, not block {block}")
        return service
