"""A chain over the network computes what the same blocks compute in one process, bit for bit."""

from __future__ import annotations

import asyncio

import pytest
import torch

from bt_p2p.chain.session import ChainSession
from bt_p2p.model.block import initial_block
from bt_p2p.objective.compose import compose
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import MASK_TOKEN, RunManifest
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import (
    tiny_identity,
    tiny_lease,
    tiny_manifest,
    tiny_overview,
    tiny_service,
    tiny_weights,
)

BYTES_NT = torch.tensor([[116, 104, 101, 32, 99, 97], [0, 255, 7, 8, 9, 10]])
MASKED_NT = torch.tensor([[116, 104, 101, MASK_TOKEN, MASK_TOKEN]])


def session_of(manifest: RunManifest) -> ChainSession:
    """One holder for each block, with weights in which every part of the block matters."""
    leases, services = [], {}
    for block in range(manifest.model.num_blocks):
        identity = tiny_identity(block)
        leases.append(tiny_lease(manifest, identity, block))
        service = tiny_service(manifest, block)
        service.adopt(shaken_weights(manifest, block), 1)
        services[identity.peer_id] = service
    return ChainSession(
        manifest, InMemoryBlockClient(services), lambda: tiny_overview(manifest, leases)
    )


def shaken_weights(manifest: RunManifest, block: int) -> dict[str, torch.Tensor]:
    """Initial weights and noise: some are zero at first, which would hide a mistake."""
    generator = torch.Generator().manual_seed(block)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in tiny_weights(manifest, block).items()
    }


def blocks_of(manifest: RunManifest):
    """The same blocks in this process, each with its objective."""
    for index in range(manifest.model.num_blocks):
        block = initial_block(manifest, index).eval()
        block.load_state_dict(shaken_weights(manifest, index))
        yield make_objective(manifest, index), block


@pytest.mark.parametrize("objective", ["plain", "cascade", "diffusion"])
@pytest.mark.parametrize("tokens_NT", [BYTES_NT, MASKED_NT], ids=["bytes", "masks"])
@pytest.mark.parametrize("start", [0, 2])
def test_a_chain_reads_what_its_blocks_read(objective, tokens_NT, start) -> None:
    """Honest log-probabilities of every block, and their composition."""
    manifest = tiny_manifest(objective=objective)
    expected, features_NTD = [], None
    with torch.inference_mode():
        for each, block in blocks_of(manifest):
            traversed = each.read(block, tokens_NT, start, features_NTD)
            features_NTD = traversed.features_NTD
            expected.append(traversed.log_probs_NPV)

    found = asyncio.run(session_of(manifest).traverse(tokens_NT, start=start, mode="read"))

    for mine, theirs in zip(expected, found.per_block_log_probs, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(compose(expected), found.log_probs_NPV)


@pytest.mark.parametrize("objective", ["plain", "cascade", "diffusion"])
@pytest.mark.parametrize("tokens_NT", [BYTES_NT, MASKED_NT], ids=["bytes", "masks"])
@pytest.mark.parametrize("start", [0, 2])
def test_a_chain_advances_as_its_blocks_do(objective, tokens_NT, start) -> None:
    """Noise and features go through the blocks in order; plain blocks hand on nothing."""
    manifest = tiny_manifest(objective=objective)
    num_sequences, num_tokens = tokens_NT.shape
    noise_NPZ = make_objective(manifest, 0).initial_noise(
        num_sequences, num_tokens - start, torch.Generator().manual_seed(0)
    )
    expected, z_NPZ, features_NTD = [], noise_NPZ, None
    with torch.inference_mode():
        for each, block in blocks_of(manifest):
            traversed = each.advance(block, tokens_NT, start, z_NPZ, features_NTD)
            z_NPZ, features_NTD = traversed.z_NPZ, traversed.features_NTD
            expected.append(traversed.log_probs_NPV)

    found = asyncio.run(
        session_of(manifest).traverse(tokens_NT, start=start, mode="advance", z_NPZ=noise_NPZ)
    )

    for mine, theirs in zip(expected, found.per_block_log_probs, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(compose(expected), found.log_probs_NPV)
