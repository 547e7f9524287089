"""The smallest runs of the model tests."""

from __future__ import annotations

import pytest

from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec, RunManifest

TINY = ModelSpec(d_model=16, num_heads=2, num_blocks=3, layers_per_block=2, context=16)


@pytest.fixture
def plain_manifest() -> RunManifest:
    """Three blocks of two narrow layers."""
    return RunManifest(name="tiny", model=TINY, objective=ObjectiveSpec(sweep_max_bytes=4))


@pytest.fixture
def diffusion_manifest() -> RunManifest:
    """The same with a denoiser in every block."""
    objective = ObjectiveSpec(name="diffusion", sweep_max_bytes=4, codebook_dim=8)
    return RunManifest(name="tiny", model=TINY, objective=objective)
