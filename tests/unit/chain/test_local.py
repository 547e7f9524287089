"""A model on this machine answers as a swarm with the same weights does."""

from __future__ import annotations

import asyncio

import pytest
import torch

from bt_p2p.chain.generate import GenerateOptions, generate
from bt_p2p.chain.local import LocalModel
from bt_p2p.chain.sampling import Sampling
from bt_p2p.chain.session import ChainSession
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import (
    tiny_identity,
    tiny_lease,
    tiny_manifest,
    tiny_overview,
    tiny_service,
    tiny_weights,
)


async def text_of(session: ChainSession) -> bytes:
    options = GenerateOptions(max_new_bytes=20, sampling=Sampling(temperature=0.0))
    return b"".join([chunk.data async for chunk in generate(session, b"The ", options)])


@pytest.mark.parametrize("objective", ["plain", "cascade", "diffusion"])
def test_it_generates_the_bytes_of_a_swarm(objective) -> None:
    manifest = tiny_manifest(objective=objective)
    local = LocalModel(manifest, [tiny_weights(manifest, block) for block in range(3)], [1, 1, 1])
    peers = [tiny_identity(block) for block in range(3)]
    services = {peer.peer_id: tiny_service(manifest, b) for b, peer in enumerate(peers)}
    overview = tiny_overview(
        manifest, [tiny_lease(manifest, peer, block) for block, peer in enumerate(peers)]
    )
    swarm = ChainSession(manifest, InMemoryBlockClient(services), lambda: overview)
    here = ChainSession(manifest, local, local.overview)
    assert asyncio.run(text_of(swarm)) == asyncio.run(text_of(here))


def test_a_lost_cache_is_sent_again() -> None:
    """As to a peer: new weights drop what was kept."""
    manifest = tiny_manifest()
    weights = [tiny_weights(manifest, block) for block in range(3)]
    local = LocalModel(manifest, weights, [1, 1, 1])
    session = ChainSession(manifest, local, local.overview)

    async def ask() -> None:
        for length in (2, 3):
            await session.traverse(
                torch.ones(1, length, dtype=torch.int64),
                start=length - 1,
                mode="read",
                is_kept=True,
            )
            for block, service in enumerate(local._services.values()):
                await asyncio.to_thread(service.adopt, weights[block], 2)

    asyncio.run(ask())
    assert 2 == session.num_traversals
