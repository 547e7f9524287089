"""The published equations, written out literally, against the code that trains.

Keys: [EDM] arXiv 2206.00364, [DB] arXiv 2506.14202, [BT] arXiv 2606.24722.
"""

from __future__ import annotations

import math

import pytest
import torch

from bt_p2p.model.block import Block, initial_block
from bt_p2p.objective.diffusion import DiffusionObjective
from bt_p2p.objective.noise import NoiseBands, coefficients, euler_step, loss_weight
from bt_p2p.objective.plain import mask_suffixes
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec, RunManifest

SIGMAS = [0.1, 0.5, 1.0, 2.5, 10.0]
SIGMA_DATA = 1 / math.sqrt(8)
MANIFEST = RunManifest(
    name="tiny",
    model=ModelSpec(d_model=16, num_heads=2, num_blocks=3, layers_per_block=1, context=12),
    objective=ObjectiveSpec(name="diffusion", sweep_max_bytes=4, codebook_dim=8),
)


@pytest.fixture
def objective() -> DiffusionObjective:
    """Of the middle block."""
    return DiffusionObjective(MANIFEST, 1)


def stirred(block: Block) -> Block:
    """The block with a denoiser that says something."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return block


@pytest.mark.parametrize("sigma", SIGMAS)
def test_preconditioning_is_table_1_of_edm(sigma):
    """[EDM] table 1, column "Ours"."""
    parts = coefficients(torch.tensor([sigma], dtype=torch.float64), SIGMA_DATA)
    assert SIGMA_DATA**2 / (sigma**2 + SIGMA_DATA**2) == pytest.approx(parts.c_skip.item())
    expected = sigma * SIGMA_DATA / math.sqrt(SIGMA_DATA**2 + sigma**2)
    assert expected == pytest.approx(parts.c_out.item())
    assert 1 / math.sqrt(SIGMA_DATA**2 + sigma**2) == pytest.approx(parts.c_in.item())
    assert 1 / 4 * math.log(sigma) == pytest.approx(parts.c_noise.item())


@pytest.mark.parametrize("sigma", SIGMAS)
def test_weight_is_table_1_of_edm_and_undoes_c_out(sigma):
    """[EDM] table 1: lambda = (s^2 + sd^2) / (s sd)^2, so that lambda c_out^2 = 1."""
    sigma_1 = torch.tensor([sigma], dtype=torch.float64)
    weight = loss_weight(sigma_1, SIGMA_DATA).item()
    assert (sigma**2 + SIGMA_DATA**2) / (sigma * SIGMA_DATA) ** 2 == pytest.approx(weight)
    assert 1.0 == pytest.approx(weight * coefficients(sigma_1, SIGMA_DATA).c_out.item() ** 2)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_weight_times_c_skip_is_the_bayes_factor(sigma):
    """weight * c_skip = 1 / sigma^2: why a zero F is the exact posterior."""
    sigma_1 = torch.tensor([sigma], dtype=torch.float64)
    product = loss_weight(sigma_1, SIGMA_DATA) * coefficients(sigma_1, SIGMA_DATA).c_skip
    assert 1 / sigma**2 == pytest.approx(product.item())


def test_euler_step_is_the_one_of_edm():
    """[EDM] algorithm 1: d = (z - D) / s, z' = z + (s' - s) d; s' = 0 lands on D."""
    generator = torch.Generator().manual_seed(0)
    z, denoised = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64)
    slope = (z - denoised) / 4.0
    torch.testing.assert_close(z + (2.5 - 4.0) * slope, euler_step(z, denoised, 4.0, 2.5))
    torch.testing.assert_close(denoised, euler_step(z, denoised, 4.0, 0.0))
    torch.testing.assert_close(z, euler_step(z, denoised, 4.0, 4.0))


@pytest.mark.parametrize("num_blocks", [2, 3, 5])
def test_bands_have_equal_probability_by_the_distribution_function(num_blocks):
    """[DB]: log-normal density integrated numerically over each band of [1, 10]."""
    spec = ObjectiveSpec(name="diffusion", sigma_log_mean=0.3, sigma_log_std=0.9)
    bands = NoiseBands(spec, num_blocks)

    def mass(low: float, high: float) -> float:
        log_sigma = torch.linspace(math.log(low), math.log(high), 20_001, dtype=torch.float64)
        density = torch.exp(-((log_sigma - 0.3) ** 2) / (2 * 0.9**2))
        return torch.trapezoid(density, log_sigma).item()

    total = mass(1.0, 10.0)
    for b in range(num_blocks):
        assert 1 / num_blocks == pytest.approx(mass(*bands.band(b)) / total, abs=1e-6)


def test_bands_have_equal_probability_by_sampling():
    """Plain rejection sampling of the log-normal, counted with `block_of`."""
    bands = NoiseBands(MANIFEST.objective, 3)
    generator = torch.Generator().manual_seed(0)
    sigma = (1.2 * torch.randn(40_000, generator=generator)).exp()
    kept = sigma[(sigma >= 1.0) & (sigma <= 10.0)].tolist()
    counts = [0, 0, 0]
    for value in kept:
        counts[bands.block_of(value)] += 1
    for count in counts:
        assert 1 / 3 == pytest.approx(count / len(kept), abs=0.015)


def test_training_draws_the_conditional_distribution_of_its_band():
    """Quantiles of what block 1 draws against rejection sampling into its band."""
    bands = NoiseBands(MANIFEST.objective, 3)
    generator = torch.Generator().manual_seed(0)
    low, high = bands.band(1)
    sigma = (1.2 * torch.randn(200_000, generator=generator)).exp()
    expected = sigma[(sigma >= low) & (sigma <= high)]
    actual = bands.sample(1, (20_000,), generator)
    shares = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    torch.testing.assert_close(
        expected.quantile(shares), actual.quantile(shares), rtol=0.01, atol=0
    )


@pytest.mark.parametrize("sigma", SIGMAS)
def test_untrained_denoiser_gives_the_posterior_found_by_enumeration(objective, sigma):
    """p(y | context, z) ~ p(y | context) N(z; e_y, sigma^2 I), for each of the 256 bytes."""
    block = initial_block(MANIFEST, 1)
    generator = torch.Generator().manual_seed(0)
    tokens_BT = torch.randint(0, 256, (1, 3), generator=generator)
    z_BTZ = objective.codebook_VZ[tokens_BT] + sigma * torch.randn(1, 3, 8, generator=generator)
    with torch.inference_mode():
        output = block(tokens_BT)
        logits_BTV = objective.denoised_logits(block, output, z_BTZ, torch.full((1, 3), sigma))
    prior_BTV = torch.softmax(output.logits_BTV, dim=-1).double()
    for t in range(3):
        joint = [
            prior_BTV[0, t, y].item()
            * math.exp(
                -sum(
                    (z_BTZ[0, t, k].item() - objective.codebook_VZ[y, k].item()) ** 2
                    for k in range(8)
                )
                / (2 * sigma**2)
            )
            for y in range(256)
        ]
        expected_V = torch.tensor(joint, dtype=torch.float64) / sum(joint)
        actual_V = torch.softmax(logits_BTV[0, t].double(), dim=-1)
        torch.testing.assert_close(expected_V, actual_V, rtol=2e-3, atol=1e-9)


def test_trained_denoiser_logits_are_the_stated_equation(objective):
    """logits = context + weight <c_skip z + c_out F, e_y>, byte by byte."""
    block = stirred(initial_block(MANIFEST, 1))
    generator = torch.Generator().manual_seed(0)
    tokens_BT = torch.randint(0, 256, (1, 2), generator=generator)
    z_BTZ = torch.randn(1, 2, 8, generator=generator)
    sigma_BT = torch.tensor([[1.5, 4.0]])
    with torch.inference_mode():
        output = block(tokens_BT)
        actual_BTV = objective.denoised_logits(block, output, z_BTZ, sigma_BT)
        for t, sigma in enumerate([1.5, 4.0]):
            total = sigma**2 + SIGMA_DATA**2
            scaled_z = z_BTZ[:, t : t + 1] / math.sqrt(total)
            c_noise = torch.full((1, 1), math.log(sigma) / 4)
            learned_Z = block.denoise(output.features_BTD[:, t : t + 1], scaled_z, c_noise)[0, 0]
            assert learned_Z.abs().max().item() > 1e-3
            c_skip, c_out = SIGMA_DATA**2 / total, sigma * SIGMA_DATA / math.sqrt(total)
            denoised_Z = c_skip * z_BTZ[0, t] + c_out * learned_Z
            weight = total / (sigma * SIGMA_DATA) ** 2
            expected_V = output.logits_BTV[0, t] + weight * (objective.codebook_VZ @ denoised_Z)
            torch.testing.assert_close(expected_V, actual_BTV[0, t], rtol=1e-4, atol=1e-4)


def test_loss_is_plain_and_weighted_cross_entropy(objective):
    """[BT]: z = e_y + sigma eps, mean of weight * CE over mean of weight, by loops; plus plain CE."""
    block = stirred(initial_block(MANIFEST, 1))
    generator = torch.Generator().manual_seed(0)
    inputs_BT, targets_BT = torch.randint(0, 256, (2, 3, 12), generator=generator)
    result = objective.loss(block, inputs_BT, targets_BT, torch.Generator().manual_seed(1))

    draws = torch.Generator().manual_seed(1)
    tokens_BT = mask_suffixes(inputs_BT, MANIFEST.objective, draws)
    sigma_BT = objective.bands.sample(1, (3, 12), draws)
    eps_BTZ = torch.randn(3, 12, 8, generator=draws)
    weighted, weights, plain = 0.0, 0.0, 0.0
    with torch.inference_mode():
        output = block(tokens_BT)
        for b in range(3):
            for t in range(12):
                sigma = sigma_BT[b, t].item()
                z_Z = objective.codebook_VZ[targets_BT[b, t]] + sigma * eps_BTZ[b, t]
                only = Slice(output, b, t)
                logits_V = objective.denoised_logits(
                    block, only, z_Z.view(1, 1, 8), sigma_BT[b, t].view(1, 1)
                )[0, 0]
                nats = -torch.log_softmax(logits_V, dim=0)[targets_BT[b, t]].item()
                weight = (sigma**2 + SIGMA_DATA**2) / (sigma * SIGMA_DATA) ** 2
                context_V = torch.log_softmax(output.logits_BTV[b, t], dim=0)
                plain -= context_V[targets_BT[b, t]].item() / 36
                weighted += weight * nats
                weights += weight
    assert plain + weighted / weights == pytest.approx(result.loss.item(), rel=1e-4)


def test_advance_is_one_euler_step_over_the_band(objective):
    """[BT]: D = softmax(logits) @ E at the band's top, z' at its bottom."""
    block = stirred(initial_block(MANIFEST, 1))
    generator = torch.Generator().manual_seed(0)
    tokens_NT = torch.randint(0, 256, (1, 6), generator=generator)
    z_NPZ = 3 * torch.randn(1, 2, 8, generator=generator)
    bottom, top = objective.bands.band(1)
    with torch.inference_mode():
        step = objective.advance(block, tokens_NT, 4, z_NPZ)
        output = block(tokens_NT)
        for p in range(2):
            logits_V = objective.denoised_logits(
                block, Slice(output, 0, 4 + p), z_NPZ[:, p : p + 1], torch.full((1, 1), top)
            )[0, 0]
            shares_V = torch.softmax(logits_V, dim=0)
            torch.testing.assert_close(shares_V.log(), step.log_probs_NPV[0, p])
            denoised_Z = sum(shares_V[y] * objective.codebook_VZ[y] for y in range(256))
            expected_Z = bottom / top * z_NPZ[0, p] + (1 - bottom / top) * denoised_Z
            torch.testing.assert_close(expected_Z, step.z_NPZ[0, p], rtol=1e-4, atol=1e-5)


class Slice:
    """One position of a block's output."""

    def __init__(self, output, b: int, t: int) -> None:
        self.features_BTD = output.features_BTD[b : b + 1, t : t + 1]
        self.logits_BTV = output.logits_BTV[b : b + 1, t : t + 1]
