"""Held-out cross entropy of each block and of their composition.

Text is cut into windows of one context, so every byte but the first is scored exactly once. The
caller gets the log-probabilities, from local blocks or from peers, and feeds them in here.

Shapes: N windows, T positions, V 256 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bt_p2p.errors import ConfigError
from bt_p2p.model.block import Block
from bt_p2p.objective.compose import compose
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import RunManifest

WINDOWS_PER_BATCH = 32
"""Windows scored at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringBatch:
    """Some windows of the text."""

    inputs_NT: Tensor
    """Int64 bytes; zeros where the text has ended."""
    targets_NT: Tensor
    """The byte after each input."""
    mask_NT: Tensor
    """Bool; True where the target is text and is scored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Mean cross entropies over a text."""

    per_block_nats: tuple[float, ...]
    """Nats per byte of each block alone."""
    final_nats: float
    """Nats per byte of the composition."""
    num_bytes: int
    """Bytes scored."""

    @property
    def bits_per_byte(self) -> float:
        """The composition in bits."""
        return self.final_nats / math.log(2)


def scoring_windows(
    data: NDArray[np.uint8], context: int, *, batch_size: int = WINDOWS_PER_BATCH
) -> Iterator[ScoringBatch]:
    """Cut a text into windows; the last one is padded, and its padding is masked.

    Args:
        data: uint8 bytes, at least two.
        context: positions in a window.
        batch_size: windows in a batch.

    Raises:
        ConfigError: fewer than two bytes.
    """
    if data.size < 2:
        raise ConfigError(f"text has {data.size} bytes, need at least 2 to score; give more text")
    num_targets = data.size - 1
    num_windows = -(-num_targets // context)
    padded = np.zeros(num_windows * context + 1, dtype=np.int64)
    padded[: data.size] = data
    inputs_NT = torch.from_numpy(padded[:-1].reshape(num_windows, context))
    targets_NT = torch.from_numpy(padded[1:].reshape(num_windows, context))
    mask_NT = (torch.arange(num_windows * context) < num_targets).view(num_windows, context)
    for first in range(0, num_windows, batch_size):
        batch = slice(first, first + batch_size)
        yield ScoringBatch(
            inputs_NT=inputs_NT[batch], targets_NT=targets_NT[batch], mask_NT=mask_NT[batch]
        )


class ScoreAccumulator:
    """Sums cross entropies over batches."""

    def __init__(self, num_blocks: int) -> None:
        self._block_nats = [0.0] * num_blocks
        self._final_nats = 0.0
        self._num_bytes = 0

    def add(
        self, per_block_log_probs: Sequence[Tensor], targets_NT: Tensor, mask_NT: Tensor
    ) -> None:
        """Score one batch.

        Args:
            per_block_log_probs: for each block in order, float [N, T, 256] on the CPU.
            targets_NT: int64 bytes.
            mask_NT: bool; True where the target counts.

        Raises:
            ValueError: not one tensor for each block.
        """
        if len(per_block_log_probs) != len(self._block_nats):
            raise ValueError(
                f"got log-probabilities of {len(per_block_log_probs)} blocks, "
                f"expected {len(self._block_nats)}; ask every block"
            )
        for index, log_probs_NTV in enumerate(per_block_log_probs):
            self._block_nats[index] += _sum_nats(log_probs_NTV, targets_NT, mask_NT)
        self._final_nats += _sum_nats(compose(per_block_log_probs), targets_NT, mask_NT)
        self._num_bytes += int(mask_NT.sum())

    def score(self) -> Score:
        """Means over everything added so far.

        Raises:
            ValueError: nothing was added.
        """
        if self._num_bytes == 0:
            raise ValueError("nothing was scored; add a batch first")
        return Score(
            per_block_nats=tuple(nats / self._num_bytes for nats in self._block_nats),
            final_nats=self._final_nats / self._num_bytes,
            num_bytes=self._num_bytes,
        )


def score_blocks(
    manifest: RunManifest,
    blocks: Sequence[Block],
    data: NDArray[np.uint8],
    *,
    noise: torch.Generator | None = None,
) -> Score:
    """Score local blocks, given in order, on a text; takes a forward pass over all of it.

    Args:
        manifest: of the blocks.
        blocks: all of the model.
        data: uint8 bytes, at least two.
        noise: score the traversals of generation, which for `diffusion` begin at pure noise drawn
            with this; None scores what the context alone says. No target is seen in either.
    """
    objectives = [make_objective(manifest, index) for index in range(len(blocks))]
    accumulator = ScoreAccumulator(len(blocks))
    with torch.inference_mode():
        for batch in scoring_windows(data, manifest.model.context):
            log_probs, features_NTD, z_NTZ = [], None, None
            if noise is not None:
                num_windows, num_tokens = batch.inputs_NT.shape
                z_NTZ = objectives[0].initial_noise(num_windows, num_tokens, noise)
            for objective, block in zip(objectives, blocks, strict=True):
                tokens_NT = batch.inputs_NT.to(block.cos_TK.device)
                if noise is None:
                    traversed = objective.read(block, tokens_NT, 0, features_NTD)
                else:
                    traversed = objective.advance(block, tokens_NT, 0, z_NTZ, features_NTD)
                    z_NTZ = traversed.z_NPZ
                log_probs.append(traversed.log_probs_NPV.cpu())
                features_NTD = traversed.features_NTD
            accumulator.add(log_probs, batch.targets_NT, batch.mask_NT)
    return accumulator.score()


def _sum_nats(log_probs_NTV: Tensor, targets_NT: Tensor, mask_NT: Tensor) -> float:
    picked_NT = log_probs_NTV.gather(-1, targets_NT.unsqueeze(-1)).squeeze(-1)
    return float(-picked_NT[mask_NT].double().sum())
