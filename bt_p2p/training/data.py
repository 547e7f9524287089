"""Batches: a pure function of seed, peer, round and step.

Shapes: B sequences, T positions.
"""

from __future__ import annotations

import json

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bt_p2p.errors import ConfigError
from bt_p2p.model.seeding import seeded_generator


class BatchSource:
    """Random windows of the training bytes."""

    def __init__(self, train: NDArray[np.uint8], context: int, batch_size: int) -> None:
        """Keep a reference to the bytes.

        Raises:
            ConfigError: fewer than context + 1 bytes.
        """
        if train.size < context + 1:
            raise ConfigError(
                f"training data has {train.size} bytes, need at least {context + 1} for a "
                f"context of {context}; give more text"
            )
        self._train = train
        self._context = context
        self._batch_size = batch_size

    def batch(self, seed: int, peer_id: str, round_index: int, step: int) -> tuple[Tensor, Tensor]:
        """The batch of one step: the same for the same arguments, on every machine.

        Returns:
            inputs_BT and targets_BT, int64 on the CPU; targets are inputs shifted by one byte.
        """
        generator = seeded_generator(batch_key(seed, peer_id, round_index, step))
        num_starts = self._train.size - self._context
        starts_B = generator.integers(0, num_starts, size=self._batch_size)
        windows = self._train[starts_B[:, None] + np.arange(self._context + 1)].astype(np.int64)
        windows_BT = torch.from_numpy(windows)
        return windows_BT[:, :-1].contiguous(), windows_BT[:, 1:].contiguous()


def batch_key(seed: int, peer_id: str, round_index: int, step: int) -> str:
    """The text that seeds everything random about one step."""
    return json.dumps([seed, peer_id, round_index, step])
