"""bt_p2p.training.baseline."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bt_p2p.errors import ConfigError
from bt_p2p.training.baseline import order1_cross_entropy


def as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def test_frequencies_are_those_of_smoothed_pairs():
    """p(b|a) and p(a|b) by hand: "abababac" has ab 3, ac 1, ba 3."""
    p_b_after_a = (3 + 0.1) / (4 + 25.6)
    p_a_after_b = (3 + 0.1) / (3 + 25.6)
    p_z_after_b = 0.1 / (3 + 25.6)
    expected = -(math.log(p_b_after_a) + math.log(p_a_after_b)) / 2
    actual = order1_cross_entropy(as_bytes("abababac"), as_bytes("aba"))
    assert expected == pytest.approx(actual)
    assert -math.log(p_z_after_b) == pytest.approx(
        order1_cross_entropy(as_bytes("abababac"), as_bytes("bz"))
    )


def test_noise_costs_the_logarithm_of_256():
    """Nothing can be learned from uniform bytes; smoothing costs a little."""
    generator = np.random.default_rng(0)
    train, heldout = (generator.integers(0, 256, 300_000).astype(np.uint8) for _ in range(2))
    assert math.log(256) == pytest.approx(order1_cross_entropy(train, heldout), abs=0.15)


def test_a_single_byte_cannot_be_scored():
    """One to read and one to predict."""
    with pytest.raises(ConfigError, match="1 bytes, need at least 2"):
        order1_cross_entropy(as_bytes("ab"), as_bytes("a"))
