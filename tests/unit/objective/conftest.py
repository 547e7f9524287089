"""The smallest runs of the objective tests, and blocks that are not at their zero-init point."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from bt_p2p.model.block import Block, initial_block
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec, RunManifest

CONTEXT = 12
NUM_BLOCKS = 3


@pytest.fixture
def manifest_of() -> Callable[[str], RunManifest]:
    """Objective's name -> tiny run."""

    def make(name: str) -> RunManifest:
        is_one = name == "end_to_end"
        return RunManifest(
            name="tiny",
            model=ModelSpec(
                d_model=16,
                num_heads=2,
                num_blocks=1 if is_one else NUM_BLOCKS,
                layers_per_block=2,
                context=CONTEXT,
            ),
            objective=ObjectiveSpec.model_validate(
                {"name": name, "sweep_max_bytes": 4, "codebook_dim": 8}
            ),
        )

    return make


@pytest.fixture
def stirred_block() -> Callable[[RunManifest], Block]:
    """Run -> block 0 with every weight moved, the denoiser's last matrix too."""

    def make(manifest: RunManifest) -> Block:
        block = initial_block(manifest, 0)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in block.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        return block

    return make
