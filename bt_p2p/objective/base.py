"""The port every objective implements.

Position i predicts byte i + 1 everywhere.

Shapes: B or N sequences, T positions of the input, P = T - start positions that are read,
V 256 bytes, D d_model, Z codebook_dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

TraversalMode = Literal["read", "advance"]
"""`read`: honest log-probabilities from the context alone; `advance`: one step of generation."""


class BlockOutputLike(Protocol):
    """What an objective needs of a block's output."""

    @property
    def features_BTD(self) -> Tensor:  # noqa: N802
        """Features, float [batch, tokens, d_model]."""

    @property
    def logits_BTV(self) -> Tensor:  # noqa: N802
        """Logits of the next byte, float32 [batch, tokens, 256]."""


class BlockLike(Protocol):
    """What an objective needs of a block."""

    def __call__(self, tokens_BT: Tensor, upstream_BTD: Tensor | None = None, /) -> BlockOutputLike:
        """Features and logits of clean or masked context; only `cascade` gives features."""

    def denoise(self, features_BTD: Tensor, scaled_z_BTZ: Tensor, c_noise_BT: Tensor, /) -> Tensor:
        """Learned part of the denoiser; only `diffusion` asks for it."""


class Upstream(Protocol):
    """Frozen, possibly stale copies of the blocks before this one."""

    def features(self, tokens_BT: Tensor) -> Tensor | None:
        """Features of the block before ours, float32 [batch, tokens, d_model]; None if missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockLoss:
    """The loss of one batch."""

    loss: Tensor
    """Scalar to minimise."""
    cross_entropy: float
    """Nats per byte over positions with ordinary input, with no target in the input."""
    num_bytes: int
    """Bytes predicted in the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traversed:
    """What a block answers in a traversal, and what it hands on to the next block."""

    log_probs_NPV: Tensor
    """Float32 log-probabilities of the next byte at each read position."""
    z_NPZ: Tensor | None = None
    """Noise state, when `diffusion` advances."""
    features_NTD: Tensor | None = None
    """Features of all positions, from `cascade`."""


class BlockObjective(Protocol):
    """How one block learns alone, and how it answers."""

    @property
    def name(self) -> str:
        """As in the manifest."""

    def is_sequential(self, mode: TraversalMode) -> bool:
        """Whether block b needs what block b-1 hands on, so that they are not asked in parallel."""

    def loss(
        self,
        block: BlockLike,
        inputs_BT: Tensor,
        targets_BT: Tensor,
        generator: torch.Generator,
    ) -> BlockLoss:
        """The local loss of a batch.

        Args:
            block: the block to train.
            inputs_BT: int64 bytes [batch, tokens].
            targets_BT: int64 bytes [batch, tokens]; targets[i] follows inputs[i].
            generator: on the CPU; draws masks and noise.
        """

    def read(
        self, block: BlockLike, tokens_NT: Tensor, start: int, features_NTD: Tensor | None = None
    ) -> Traversed:
        """Honest log-probabilities at positions start..T-1, from the context alone.

        Args:
            block: the block to ask.
            tokens_NT: int64 [sequences, tokens], bytes or MASK_TOKEN.
            start: first position to read.
            features_NTD: from the block before, for `cascade`; None where there is none.
        """

    def advance(
        self,
        block: BlockLike,
        tokens_NT: Tensor,
        start: int,
        z_NPZ: Tensor | None,
        features_NTD: Tensor | None = None,
    ) -> Traversed:
        """This block's part of a generation traversal; arguments as in `read`.

        Args:
            block: the block to ask.
            tokens_NT: int64 [sequences, tokens], bytes or MASK_TOKEN.
            start: first position to read.
            z_NPZ: from the block before, or from `initial_noise` for block 0.
            features_NTD: as in `read`.

        Raises:
            WireFormatError: z is missing, or not of the shape this objective needs.
        """

    def initial_noise(
        self, num_sequences: int, num_positions: int, generator: torch.Generator
    ) -> Tensor | None:
        """What block 0 gets as z: pure noise, or None unless the objective needs any."""


def log_probs_from(logits_BTV: Tensor, start: int) -> Tensor:
    """Float32 log-probabilities at positions start..T-1."""
    return torch.log_softmax(logits_BTV[:, start:].float(), dim=-1)
