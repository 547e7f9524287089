"""Noise levels: equal-probability bands, sampling, EDM coefficients and the Euler step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import ObjectiveSpec

_UNIT_NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True, slots=True)
class Coefficients:
    """EDM preconditioning at given noise levels; all have the shape of sigma."""

    c_skip: Tensor
    c_out: Tensor
    c_in: Tensor
    c_noise: Tensor


def coefficients(sigma: Tensor, sigma_data: float) -> Coefficients:
    """EDM preconditioning.

    Reference: arXiv 2206.00364 table 1.

        c_skip = sd^2 / (s^2 + sd^2)         c_out = s sd / sqrt(s^2 + sd^2)
        c_in   = 1 / sqrt(s^2 + sd^2)        c_noise = ln(s) / 4
    """
    total = sigma**2 + sigma_data**2
    return Coefficients(
        c_skip=sigma_data**2 / total,
        c_out=sigma * sigma_data / total.sqrt(),
        c_in=total.rsqrt(),
        c_noise=sigma.log() / 4,
    )


def loss_weight(sigma: Tensor, sigma_data: float) -> Tensor:
    """Weight of the loss at a noise level.

    Reference: arXiv 2206.00364 table 1, (s^2 + sd^2) / (s sd)^2.
    """
    return (sigma**2 + sigma_data**2) / (sigma * sigma_data) ** 2


def euler_step(z: Tensor, denoised: Tensor, sigma: float, next_sigma: float) -> Tensor:
    """One step of the probability-flow equation from sigma to next_sigma.

    Reference: arXiv 2206.00364 algorithm 1, z' = z + (s' - s) (z - D) / s
    = (s'/s) z + (1 - s'/s) D.
    """
    ratio = next_sigma / sigma
    return ratio * z + (1 - ratio) * denoised


class NoiseBands:
    """Partition of the noise levels among blocks; block 0 owns the highest band.

    ln(sigma) is normal, cut off to [sigma_min, sigma_max]; every band has the probability 1/B.

    Reference: arXiv 2506.14202, section on the partition of noise levels.
    """

    def __init__(self, spec: ObjectiveSpec, num_blocks: int) -> None:
        self._spec = spec
        self._lowest = self._normal_cdf(spec.sigma_min)
        self._span = self._normal_cdf(spec.sigma_max) - self._lowest
        if not self._span > 1e-9:
            raise ConfigError(
                f"the noise range [{spec.sigma_min}, {spec.sigma_max}] has no probability under "
                f"ln(sigma) ~ N({spec.sigma_log_mean}, {spec.sigma_log_std}); "
                f"move sigma_log_mean into the range"
            )
        inner = [self.quantile(1 - b / num_blocks) for b in range(1, num_blocks)]
        self.edges = (spec.sigma_max, *inner, spec.sigma_min)
        """Descending; block b owns edges[b + 1] to edges[b]."""

    @property
    def num_blocks(self) -> int:
        """Bands, one for each block."""
        return len(self.edges) - 1

    def band(self, block_index: int) -> tuple[float, float]:
        """Lowest and highest sigma of a block."""
        return self.edges[block_index + 1], self.edges[block_index]

    def block_of(self, sigma: float) -> int:
        """The block that owns a noise level; a shared edge belongs to the lower band.

        The only map from sigma to block. Levels outside the range go to the nearest band.
        """
        return min(sum(sigma <= edge for edge in self.edges[1:]), self.num_blocks - 1)

    def cdf(self, sigma: float) -> float:
        """Probability of a noise level at or below sigma."""
        share = (self._normal_cdf(sigma) - self._lowest) / self._span
        return min(max(share, 0.0), 1.0)

    def quantile(self, share: float) -> float:
        """Inverse of `cdf`."""
        log_sigma = _UNIT_NORMAL.inv_cdf(self._lowest + share * self._span)
        return math.exp(self._spec.sigma_log_mean + self._spec.sigma_log_std * log_sigma)

    def sample(
        self, block_index: int, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor:
        """Noise levels of one block's band, float32 on the CPU."""
        low, high = (self.cdf(sigma) for sigma in self.band(block_index))
        share = low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)
        log_sigma: Tensor = torch.special.ndtri(self._lowest + share * self._span)
        sigma: Tensor = (self._spec.sigma_log_mean + self._spec.sigma_log_std * log_sigma).exp()
        return sigma.clamp(*self.band(block_index)).float()

    def _normal_cdf(self, sigma: float) -> float:
        return _UNIT_NORMAL.cdf(
            (math.log(sigma) - self._spec.sigma_log_mean) / self._spec.sigma_log_std
        )
