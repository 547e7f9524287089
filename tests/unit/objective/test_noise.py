"""bt_p2p.objective.noise."""

from __future__ import annotations

import math

import pytest
import torch

from bt_p2p.errors import ConfigError
from bt_p2p.objective.noise import NoiseBands
from bt_p2p.protocol.manifest import ObjectiveSpec

SPEC = ObjectiveSpec(name="diffusion")


@pytest.mark.parametrize("num_blocks", [1, 3, 7])
def test_bands_cover_the_range_from_high_to_low(num_blocks):
    """Block 0 starts at sigma_max, the last ends at sigma_min, neighbours share an edge."""
    bands = NoiseBands(SPEC, num_blocks)
    assert num_blocks == bands.num_blocks
    assert SPEC.sigma_max == bands.band(0)[1]
    assert SPEC.sigma_min == bands.band(num_blocks - 1)[0]
    for b in range(num_blocks):
        low, high = bands.band(b)
        assert low < high
        if b:
            assert high == bands.band(b - 1)[0]


@pytest.mark.parametrize("num_blocks", [1, 3, 7])
def test_one_map_sends_each_sigma_to_the_owner_of_its_band(num_blocks):
    """Middles and edges agree with `band`; an edge belongs to the lower band."""
    bands = NoiseBands(SPEC, num_blocks)
    for b in range(num_blocks):
        low, high = bands.band(b)
        assert b == bands.block_of(math.sqrt(low * high))
        assert b == bands.block_of(high)
    assert num_blocks - 1 == bands.block_of(SPEC.sigma_min)
    assert 0 == bands.block_of(2 * SPEC.sigma_max)
    assert num_blocks - 1 == bands.block_of(SPEC.sigma_min / 2)


def test_samples_stay_in_the_band_of_their_block():
    """What training draws for block b is owned by block b."""
    bands = NoiseBands(SPEC, 3)
    generator = torch.Generator().manual_seed(0)
    for b in range(3):
        low, high = bands.band(b)
        sigma = bands.sample(b, (50, 4), generator)
        assert (50, 4) == tuple(sigma.shape)
        assert torch.float32 == sigma.dtype
        assert low * (1 - 1e-6) <= sigma.min().item()
        assert sigma.max().item() <= high * (1 + 1e-6)
        inside = sigma[(sigma > low * (1 + 1e-6)) & (sigma < high * (1 - 1e-6))]
        assert {b} == {bands.block_of(value) for value in inside.tolist()}


def test_quantile_inverts_the_cdf():
    """Over the whole range."""
    bands = NoiseBands(SPEC, 3)
    for share in (0.01, 0.3, 0.5, 0.99):
        assert share == pytest.approx(bands.cdf(bands.quantile(share)), abs=1e-9)
    assert (0.0, 1.0) == (bands.cdf(SPEC.sigma_min / 2), bands.cdf(2 * SPEC.sigma_max))


def test_a_range_without_probability_is_refused():
    """Far out in the tail no band could be drawn from."""
    spec = ObjectiveSpec(name="diffusion", sigma_log_mean=-30.0, sigma_log_std=0.5)
    with pytest.raises(ConfigError, match=r"no probability .* move sigma_log_mean"):
        NoiseBands(spec, 3)
