"""What each kind of attacker brings to a round, and hands back as a reducer.

Attackers know the last agreed weights, claim as many samples as the others, and hand back their
share of the average honestly unless that is the attack.

Shapes: M honest members, P parameters.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.attacks.config import Kind
from bt_p2p.training.data import BatchSource

TRAINED: frozenset[Kind] = frozenset({"sign_flip", "label_flip", "lying_reducer"})
"""Kinds that train as everybody does, or nearly."""
_NOISE_SCALE = 10.0
"""Norm of the noise over that of an honest change."""
_HIDDEN_SPREADS = 1.0
"""How many standard deviations of the honest a hidden attack is away from their mean."""


class FlippedLabels(BatchSource):
    """Batches whose every target is the wrong byte."""

    def batch(self, seed: int, peer_id: str, round_index: int, step: int) -> tuple[Tensor, Tensor]:
        """As `BatchSource.batch`, with byte v as 255 - v in the targets."""
        inputs_BT, targets_BT = super().batch(seed, peer_id, round_index, step)
        return inputs_BT, 255 - targets_BT


class Attacker:
    """One hostile replica."""

    def __init__(self, kind: Kind, generator: np.random.Generator) -> None:
        self.kind: Kind = kind
        self._generator = generator
        self._kept_P: Tensor | None = None

    def brings(self, start_P: Tensor, trained_P: Tensor, honest_MP: Tensor) -> Tensor:
        """The weights it sends.

        Args:
            start_P: what the round began with.
            trained_P: what its own training made of them; `start_P` for kinds without any.
            honest_MP: what honest members bring, which only a strong attacker knows.
        """
        match self.kind:
            case "nan":
                return torch.full_like(start_P, torch.nan)
            case "sign_flip":
                return 2 * start_P - trained_P
            case "noise":
                noise_P = torch.from_numpy(self._draw(len(start_P)))
                size = float((honest_MP - start_P).norm(dim=1).median())
                return start_P + noise_P * (_NOISE_SCALE * size / float(noise_P.norm()))
            case "replay":
                if self._kept_P is None:
                    self._kept_P = start_P.clone()
                return self._kept_P
            case "hidden":
                mean_P = honest_MP.mean(dim=0)
                spread_P = honest_MP.std(dim=0)
                hidden_P: Tensor = mean_P - _HIDDEN_SPREADS * spread_P * (mean_P - start_P).sign()
                return hidden_P
            case "label_flip" | "lying_reducer":
                return trained_P

    def hands_back(self, merged_P: Tensor, start_P: Tensor) -> Tensor:
        """What it says the average of its share is."""
        return 2 * start_P - merged_P if self.kind == "lying_reducer" else merged_P

    def _draw(self, size: int) -> NDArray[np.float32]:
        return self._generator.standard_normal(size, dtype=np.float32)
