"""bt_p2p.chain.span: several blocks of one peer."""

from __future__ import annotations

import asyncio

import pytest
import torch

from bt_p2p.chain.block_rpc import ForwardRequest
from bt_p2p.chain.span import SpanService
from bt_p2p.errors import WireFormatError
from bt_p2p.testing.tiny import tiny_manifest, tiny_service

ASKER = "somebody"
MANIFEST = tiny_manifest(num_blocks=4)


def request(block: int) -> ForwardRequest:
    return ForwardRequest(
        run_id=MANIFEST.run_id,
        block=block,
        mode="read",
        tokens_NT=torch.tensor([[1, 2, 3]]),
        start=0,
    )


def test_each_block_answers_for_itself() -> None:
    """Answers and weights are those of its own service."""
    services = {block: tiny_service(MANIFEST, block, round_index=block) for block in (1, 2)}
    span = SpanService(services)
    for block, service in services.items():
        expected = asyncio.run(service.forward(request(block), asker=ASKER))
        found = asyncio.run(span.forward(request(block), asker=ASKER))
        assert torch.equal(expected.log_probs_NPV, found.log_probs_NPV)
        [offer] = asyncio.run(span.weights_offers(MANIFEST.run_id, block, asker=ASKER))
        asked = span.weights_chunk(MANIFEST.run_id, block, offer.offer_id, 0, asker=ASKER)
        assert (block, True) == (offer.round_index, offer.holds(0, asyncio.run(asked)))


def test_another_block_is_refused_with_those_that_are_served() -> None:
    """A copy that has come later is served, too."""
    services = {1: tiny_service(MANIFEST, 1)}
    span = SpanService(services)
    with pytest.raises(WireFormatError, match="serves block 1, not block 2"):
        asyncio.run(span.forward(request(2), asker=ASKER))
    services[2] = tiny_service(MANIFEST, 2)
    asyncio.run(span.forward(request(2), asker=ASKER))
    with pytest.raises(WireFormatError, match="serves block 1, 2, not block 3"):
        asyncio.run(span.weights_offers(MANIFEST.run_id, 3, asker=ASKER))
