"""Depth that trains apart: a block also sees the features of the block before it.

They come from frozen, possibly stale, forward-only copies of the earlier blocks, and no gradient
leaves the block:

    features_b, logits_b = block_b(x, stop_gradient(features_{b-1}))

Where the block before is missing, in training or in a traversal, its features are zeros. A share
of the training sequences sees zeros too, so that a block can do without.

Shapes as in base.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bt_p2p.objective.base import (
    BlockLike,
    TraversalMode,
    Traversed,
    Upstream,
    log_probs_from,
)
from bt_p2p.objective.plain import PlainObjective
from bt_p2p.protocol.manifest import ObjectiveSpec


class CascadeObjective(PlainObjective):
    """Next-byte cross entropy of a block that also sees the features of the one before it."""

    name = "cascade"

    def __init__(self, spec: ObjectiveSpec, upstream: Upstream | None) -> None:
        super().__init__(spec)
        self._upstream = upstream

    def is_sequential(self, mode: TraversalMode) -> bool:  # noqa: ARG002  # the port has it
        """True: every block needs the features of the one before it."""
        return True

    def upstream_features(self, tokens_BT: Tensor, generator: torch.Generator) -> Tensor | None:
        """Features of the copy before, [batch, tokens, d_model], some sequences zeroed."""
        is_kept_B11 = torch.rand(len(tokens_BT), 1, 1, generator=generator) >= (
            self._spec.upstream_dropout
        )
        features_BTD = None if self._upstream is None else self._upstream.features(tokens_BT)
        if features_BTD is None:
            return None
        return features_BTD.detach() * is_kept_B11.to(features_BTD.device)

    def read(
        self, block: BlockLike, tokens_NT: Tensor, start: int, features_NTD: Tensor | None = None
    ) -> Traversed:
        """See `BlockObjective.read`."""
        output = block(tokens_NT, features_NTD)
        return Traversed(
            log_probs_NPV=log_probs_from(output.logits_BTV, start),
            features_NTD=output.features_BTD.detach().float(),
        )
