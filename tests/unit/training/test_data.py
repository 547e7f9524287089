"""bt_p2p.training.data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bt_p2p.errors import ConfigError
from bt_p2p.training.data import BatchSource

TRAIN = np.arange(200, dtype=np.uint8)


def test_targets_are_inputs_shifted_by_one_byte():
    """Here each byte is its own position, so windows are visible."""
    inputs_BT, targets_BT = BatchSource(TRAIN, 16, 8).batch(0, "me", 0, 0)
    assert (8, 16) == tuple(inputs_BT.shape)
    assert torch.int64 == inputs_BT.dtype == targets_BT.dtype
    assert torch.equal(inputs_BT + 1, targets_BT)
    assert torch.equal(inputs_BT[:, :1] + torch.arange(16), inputs_BT)


def test_a_batch_follows_from_its_four_arguments():
    """The same twice; another one if any of them differs."""
    source = BatchSource(TRAIN, 16, 8)
    arguments = [
        (0, "me", 0, 0),
        (1, "me", 0, 0),
        (0, "you", 0, 0),
        (0, "me", 1, 0),
        (0, "me", 0, 1),
    ]
    batches = [tuple(source.batch(*each)[0].flatten().tolist()) for each in arguments]
    assert 5 == len(set(batches))
    assert torch.equal(source.batch(0, "me", 0, 0)[0], source.batch(0, "me", 0, 0)[0])


def test_names_and_numbers_do_not_run_into_each_other():
    """Peer "a1" in round 2 is not peer "a" in round 12."""
    source = BatchSource(TRAIN, 16, 8)
    assert not torch.equal(source.batch(0, "a1", 2, 0)[0], source.batch(0, "a", 12, 0)[0])


def test_a_batch_is_the_golden_one():
    """Every machine and every release draws the same windows."""
    inputs_BT, _ = BatchSource(TRAIN, 16, 4).batch(7, "peer", 3, 5)
    assert [181, 35, 183, 161] == inputs_BT[:, 0].tolist()


def test_every_window_is_drawn_the_first_and_the_last_too():
    """A text one byte longer than needed has exactly two."""
    source = BatchSource(np.arange(10, dtype=np.uint8), 8, 64)
    assert {0, 1} == set(source.batch(0, "me", 0, 0)[0][:, 0].tolist())


def test_too_little_text_is_refused():
    """With both numbers."""
    with pytest.raises(ConfigError, match="has 16 bytes, need at least 17"):
        BatchSource(TRAIN[:16], 16, 4)
