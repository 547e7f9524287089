"""The cross entropy any model must beat: the frequencies of byte pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import VOCAB_SIZE

SMOOTHING = 0.1
"""Added to the count of every pair."""


def order1_cross_entropy(train: NDArray[np.uint8], heldout: NDArray[np.uint8]) -> float:
    """Nats per byte of held-out text under p(next | byte), counted on the training text.

        p(y | x) = (count(x, y) + a) / (count(x) + 256 a)

    Every held-out byte but the first is scored, as in `evaluation`.

    Raises:
        ConfigError: nothing to score.
    """
    if heldout.size < 2:
        raise ConfigError(
            f"held-out text has {heldout.size} bytes, need at least 2; give more text"
        )
    pairs = train[:-1].astype(np.int64) * VOCAB_SIZE + train[1:]
    counts = np.bincount(pairs, minlength=VOCAB_SIZE**2).reshape(VOCAB_SIZE, VOCAB_SIZE)
    smoothed = counts + SMOOTHING
    log_probs = np.log(smoothed) - np.log(smoothed.sum(axis=1, keepdims=True))
    return float(-log_probs[heldout[:-1], heldout[1:]].mean())
