"""bt_p2p.objective.diffusion; its equations are tested in tests/numerics."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.errors import WireFormatError
from bt_p2p.model.block import initial_block
from bt_p2p.model.wire import tensors_digest
from bt_p2p.objective.diffusion import seeded_codebook
from bt_p2p.objective.registry import make_objective

GOLDEN_CODEBOOK = "fac0e2e68045b27a5dc66b469bce665e296c8ba79e259bf864905bd31f32f727"


def test_codebook_is_the_golden_one():
    """Peers that disagree on it could not hand on z."""
    assert GOLDEN_CODEBOOK == tensors_digest({"codebook": seeded_codebook(0, 8)})


def test_codebook_rows_have_unit_norm_and_follow_the_seed():
    """The leak cannot reopen by growing norms."""
    codebook_VZ = seeded_codebook(3, 64)
    assert (256, 64) == tuple(codebook_VZ.shape)
    torch.testing.assert_close(torch.ones(256), codebook_VZ.norm(dim=1))
    assert not torch.equal(codebook_VZ, seeded_codebook(4, 64))


def test_noise_starts_pure_at_the_highest_sigma(manifest_of):
    """Nothing of any target is in it."""
    objective = make_objective(manifest_of("diffusion"), 0)
    assert objective.is_sequential("advance")
    assert not objective.is_sequential("read")
    z_NPZ = objective.initial_noise(40, 50, torch.Generator().manual_seed(0))
    assert (40, 50, 8) == tuple(z_NPZ.shape)
    assert 10.0 == pytest.approx(z_NPZ.std().item(), rel=0.02)
    assert 0.0 == pytest.approx(z_NPZ.mean().item(), abs=0.3)


def test_a_chain_passes_z_from_the_top_to_the_bottom(manifest_of):
    """Three blocks in order; the last leaves z near the codebook at sigma_min."""
    manifest = manifest_of("diffusion")
    tokens_NT = torch.zeros(2, 12, dtype=torch.int64)
    z_NPZ = make_objective(manifest, 0).initial_noise(2, 4, torch.Generator().manual_seed(0))
    norms = [z_NPZ.norm().item()]
    with torch.inference_mode():
        for b in range(3):
            step = make_objective(manifest, b).advance(
                initial_block(manifest, b), tokens_NT, 8, z_NPZ
            )
            z_NPZ = step.z_NPZ
            norms.append(z_NPZ.norm().item())
            assert (2, 4, 256) == tuple(step.log_probs_NPV.shape)
    assert sorted(norms, reverse=True) == norms
    assert 0.1 == pytest.approx(norms[-1] / norms[0], abs=0.02)


@pytest.mark.parametrize("z_NPZ", [None, torch.zeros(2, 4, 7), torch.zeros(1, 4, 8)])
def test_missing_or_misshapen_noise_is_refused(manifest_of, z_NPZ):
    """The peer before sent it; the message says the shape that was needed."""
    manifest = manifest_of("diffusion")
    tokens_NT = torch.zeros(2, 12, dtype=torch.int64)
    with pytest.raises(WireFormatError, match=r"needs z of shape \[2, 4, 8\]"):
        make_objective(manifest, 0).advance(initial_block(manifest, 0), tokens_NT, 8, z_NPZ)


def test_the_denoiser_does_not_shape_the_features(manifest_of, stirred_block):
    """Without gradients through F, the context's logits cannot leave their work to it."""
    manifest = manifest_of("diffusion")
    block, objective = stirred_block(manifest), make_objective(manifest, 1)
    output = block(torch.zeros(1, 3, dtype=torch.int64))
    output.logits_BTV.detach_()
    logits_BTV = objective.denoised_logits(
        block, output, torch.ones(1, 3, 8), torch.full((1, 3), 2.0)
    )
    logits_BTV.square().sum().backward()
    reached = {name for name, own in block.named_parameters() if own.grad is not None}
    assert {"denoiser.up.weight", "denoiser.out.weight"} == reached


def test_loss_follows_its_generator_and_reaches_every_weight(manifest_of, stirred_block):
    """Same noise, same loss; no part of the block is left without a gradient."""
    manifest = manifest_of("diffusion")
    block, objective = stirred_block(manifest), make_objective(manifest, 1)
    generator = torch.Generator().manual_seed(0)
    inputs_BT, targets_BT = torch.randint(0, 256, (2, 4, 12), generator=generator)
    first, second = (
        objective.loss(block, inputs_BT, targets_BT, torch.Generator().manual_seed(1)).loss
        for _ in range(2)
    )
    assert first.item() == second.item()
    first.backward()
    idle = [name for name, own in block.named_parameters() if own.grad is None]
    assert [] == idle
