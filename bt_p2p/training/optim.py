"""AdamW with decay on matrices only, and the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from bt_p2p.protocol.manifest import OptimizerSpec, RoundSpec

FINAL_SHARE = 0.1
"""Share of the peak learning rate at the end of the decay and ever after."""
_ADAM_EPS = 1e-8


def make_optimizer(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
    """AdamW over the parameters, in their order; vectors (norms) do not decay.

    Reference: arXiv 1711.05101, algorithm 2.
    """
    everything = list(parameters)
    groups = [
        {
            "params": [parameter for parameter in everything if parameter.ndim >= 2],
            "weight_decay": spec.weight_decay,
        },
        {
            "params": [parameter for parameter in everything if parameter.ndim < 2],
            "weight_decay": 0.0,
        },
    ]
    is_fused = all(parameter.device.type in {"cpu", "cuda"} for parameter in everything)
    return torch.optim.AdamW(
        groups,
        lr=spec.learning_rate,
        betas=(spec.beta1, spec.beta2),
        eps=_ADAM_EPS,
        fused=is_fused,
    )


def learning_rate(
    spec: OptimizerSpec, rounds: RoundSpec, steps_since_fresh: int, round_index: int
) -> float:
    """Learning rate of the next step.

    A linear warm-up over local steps, since a fresh optimizer knows no second moments, times a
    cosine over the run's rounds, which all replicas share:

        share = 0.1 + 0.9 * (1 + cos(pi * min(round / decay_rounds, 1))) / 2

    Args:
        spec: peak and warm-up.
        rounds: length of the decay.
        steps_since_fresh: steps this optimizer has taken, 0 for the first.
        round_index: round of the run.
    """
    warmup = min(1.0, (steps_since_fresh + 1) / max(1, spec.warmup_steps))
    progress = min(max(round_index, 0) / rounds.decay_rounds, 1.0)
    share = FINAL_SHARE + (1 - FINAL_SHARE) * (1 + math.cos(math.pi * progress)) / 2
    return spec.learning_rate * warmup * share
