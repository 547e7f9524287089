"""From a distribution over the next byte to a byte.

A byte is drawn with noise that only depends on the seed and on the byte's position in the text:
argmax over bytes of log p / temperature + Gumbel noise, which is a sample of softmax(log p /
temperature). So whoever knows the seed and a similar distribution draws the same byte most of the
time, which is what makes drafting work at any temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import VOCAB_SIZE


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How bytes are drawn."""

    temperature: float = 0.8
    """0 takes the most likely byte; 1 draws from the model's own distribution."""
    top_p: float = 1.0
    """Draw among the likeliest bytes that together have this probability."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if not 0 <= self.temperature <= 10:
            raise ConfigError(f"temperature {self.temperature} is outside 0 to 10")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top-p {self.top_p} is outside (0, 1]")


def sample_bytes(
    log_probs_PV: Tensor, sampling: Sampling, *, seed: int, position: int
) -> list[int]:
    """Draw one byte for each position.

    Args:
        log_probs_PV: float [positions, 256].
        sampling: how to draw.
        seed: of the text.
        position: of the first byte in the text; the others follow it.
    """
    if sampling.temperature == 0:
        return [int(byte) for byte in log_probs_PV.argmax(dim=-1)]
    # the best byte becomes 0, so that no temperature is too low to divide by
    below_best_PV = log_probs_PV.double() - log_probs_PV.double().amax(dim=-1, keepdim=True)
    scores_PV = below_best_PV / sampling.temperature
    if sampling.top_p < 1:
        sorted_PV, order_PV = torch.softmax(scores_PV, dim=-1).sort(dim=-1, descending=True)
        # keep a byte when those before it do not reach top_p yet; the first is always kept
        is_cut_PV = sorted_PV.cumsum(dim=-1) - sorted_PV >= sampling.top_p
        is_cut_PV = torch.zeros_like(is_cut_PV).scatter(-1, order_PV, is_cut_PV)
        scores_PV = scores_PV.masked_fill(is_cut_PV, -torch.inf)
    noise_PV = [gumbel_noise(seed, position + index) for index in range(len(scores_PV))]
    drawn_P = (scores_PV + torch.from_numpy(np.stack(noise_PV))).argmax(dim=-1)
    return [int(byte) for byte in drawn_P]


def gumbel_noise(seed: int, position: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Standard Gumbel noise of one position of one text, float64 [256]."""
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, position]))
    return generator.gumbel(size=VOCAB_SIZE)
