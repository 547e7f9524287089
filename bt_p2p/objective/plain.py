"""Next-byte cross entropy of the block alone; the control for everything.

Shapes as in base.py.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from bt_p2p.objective.base import BlockLike, BlockLoss, TraversalMode, Traversed, log_probs_from
from bt_p2p.protocol.manifest import MASK_TOKEN, ObjectiveSpec


def mask_suffixes(inputs_BT: Tensor, spec: ObjectiveSpec, generator: torch.Generator) -> Tensor:
    """Replace the end of some sequences by MASK_TOKEN, as a sweep will see them.

    Each sequence is chosen with probability `sweep_fraction`; its last m inputs are masked, m
    uniform in 1..sweep_max_bytes. The last known byte, at T-m-1, predicts the first unknown one.

    Args:
        inputs_BT: int64 bytes [batch, tokens].
        spec: share and longest length.
        generator: on the CPU, so that every device draws the same.
    """
    num_sequences, num_tokens = inputs_BT.shape
    longest = min(spec.sweep_max_bytes, num_tokens - 1)
    is_chosen_B1 = torch.rand(num_sequences, 1, generator=generator) < spec.sweep_fraction
    length_B1 = torch.randint(1, longest + 1, (num_sequences, 1), generator=generator)
    is_masked_BT = is_chosen_B1 & (torch.arange(num_tokens) >= num_tokens - length_B1)
    return inputs_BT.masked_fill(is_masked_BT.to(inputs_BT.device), MASK_TOKEN)


def nats_per_position(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Cross entropy at each position, float32 [batch, tokens]."""
    nats = F.cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten(), reduction="none")
    return nats.view_as(targets_BT)


def plain_loss(logits_BTV: Tensor, tokens_BT: Tensor, targets_BT: Tensor) -> BlockLoss:
    """Mean cross entropy over all positions, and over those with ordinary input."""
    nats_BT = nats_per_position(logits_BTV, targets_BT)
    honest_nats = nats_BT.detach()[tokens_BT != MASK_TOKEN].mean()
    return BlockLoss(
        loss=nats_BT.mean(), cross_entropy=float(honest_nats), num_bytes=targets_BT.numel()
    )


class PlainObjective:
    """Every position predicts the next byte and weighs the same."""

    name = "plain"

    def __init__(self, spec: ObjectiveSpec) -> None:
        self._spec = spec

    def is_sequential(self, mode: TraversalMode) -> bool:  # noqa: ARG002  # the port has it
        """False: blocks hand on nothing."""
        return False

    def loss(
        self,
        block: BlockLike,
        inputs_BT: Tensor,
        targets_BT: Tensor,
        generator: torch.Generator,
    ) -> BlockLoss:
        """See `BlockObjective.loss`."""
        tokens_BT = mask_suffixes(inputs_BT, self._spec, generator)
        upstream_BTD = self.upstream_features(tokens_BT, generator)
        return plain_loss(block(tokens_BT, upstream_BTD).logits_BTV, tokens_BT, targets_BT)

    def upstream_features(
        self,
        tokens_BT: Tensor,  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> Tensor | None:
        """What the block is given besides the tokens while it trains: nothing."""
        return None

    def read(
        self,
        block: BlockLike,
        tokens_NT: Tensor,
        start: int,
        features_NTD: Tensor | None = None,  # noqa: ARG002
    ) -> Traversed:
        """See `BlockObjective.read`."""
        return Traversed(log_probs_NPV=log_probs_from(block(tokens_NT).logits_BTV, start))

    def advance(
        self,
        block: BlockLike,
        tokens_NT: Tensor,
        start: int,
        z_NPZ: Tensor | None,  # noqa: ARG002
        features_NTD: Tensor | None = None,
    ) -> Traversed:
        """See `BlockObjective.advance`; the same as `read`."""
        return self.read(block, tokens_NT, start, features_NTD)

    def initial_noise(
        self,
        num_sequences: int,  # noqa: ARG002
        num_positions: int,  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> Tensor | None:
        """None: blocks hand on nothing."""
        return None
