"""From a distribution over the next byte to a byte."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bt_p2p.errors import ConfigError


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


def sample_bytes(log_probs_PV: Tensor, sampling: Sampling, generator: torch.Generator) -> list[int]:
    """Draw one byte for each position.

    Args:
        log_probs_PV: float [positions, 256].
        sampling: how to draw.
        generator: on the CPU.
    """
    if sampling.temperature == 0:
        return [int(byte) for byte in log_probs_PV.argmax(dim=-1)]
    # the best byte becomes 0, so that no temperature is too low to divide by
    below_best_PV = log_probs_PV.double() - log_probs_PV.double().amax(dim=-1, keepdim=True)
    probs_PV = torch.softmax(below_best_PV / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        sorted_PV, order_PV = probs_PV.sort(dim=-1, descending=True)
        # keep a byte when those before it do not reach top_p yet; the first is always kept
        is_kept_PV = sorted_PV.cumsum(dim=-1) - sorted_PV < sampling.top_p
        probs_PV = torch.zeros_like(probs_PV).scatter(-1, order_PV, sorted_PV * is_kept_PV)
    drawn = torch.multinomial(probs_PV, 1, generator=generator)
    return [int(byte) for byte in drawn.flatten()]
