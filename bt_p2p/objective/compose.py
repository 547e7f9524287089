"""One distribution from the blocks' distributions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def compose(log_probs: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """Normalised geometric mean of distributions: log_softmax of the mean log-probability.

    Args:
        log_probs: one float tensor [..., 256] for each block.
        weights: one weight for each block, not negative; uniform when None.

    Returns:
        Float32 log-probabilities [..., 256].

    Raises:
        ValueError: no distribution, or as many weights as distributions are missing.
    """
    if not log_probs:
        raise ValueError("nothing to compose; give at least one block's log-probabilities")
    shares = [1.0] * len(log_probs) if weights is None else list(weights)
    if len(shares) != len(log_probs) or min(shares) < 0 or sum(shares) <= 0:
        raise ValueError(
            f"weights {shares} do not fit {len(log_probs)} blocks; give one positive weight each"
        )
    total = sum(shares)
    mean = torch.zeros_like(log_probs[0], dtype=torch.float32)
    for share, block_log_probs in zip(shares, log_probs, strict=True):
        mean += (share / total) * block_log_probs
    return torch.log_softmax(mean, dim=-1)
