"""bt_p2p.training.heldout: private looks at held-out text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bt_p2p.evaluation import score_blocks
from bt_p2p.model.block import initial_block
from bt_p2p.model.device import DeviceChoice
from bt_p2p.testing.tiny import tiny_manifest, tiny_weights
from bt_p2p.training.heldout import HeldOutProbe

CPU = DeviceChoice(device=torch.device("cpu"), autocast_bf16=False, reason="test")
TEXT = np.random.default_rng(0).integers(97, 123, size=5000, dtype=np.uint8)


def probe(seed: int = 1, text=TEXT) -> HeldOutProbe:
    return HeldOutProbe(tiny_manifest(), 0, CPU, text, seed=seed)


def test_a_look_is_about_what_the_whole_text_says() -> None:
    """Mean over the windows, against the honest score of the same block."""
    manifest = tiny_manifest()
    [nats_N] = probe()([tiny_weights(manifest, 0)])
    whole = score_blocks(manifest, [initial_block(manifest, 0)], TEXT).final_nats
    assert whole == pytest.approx(float(nats_N.mean()), abs=0.02)


def test_all_weights_of_one_look_see_the_same_windows() -> None:
    """The same weights get the same figures twice."""
    weights = tiny_weights(tiny_manifest(), 0)
    first_N, second_N = probe()([weights, weights])
    assert torch.equal(first_N, second_N)


def test_every_look_and_every_seed_has_windows_of_its_own() -> None:
    """Nobody can prepare weights for them."""
    weights = tiny_weights(tiny_manifest(), 0)
    ours, theirs = probe(1), probe(2)
    [first_N], [again_N], [other_N] = ours([weights]), ours([weights]), theirs([weights])
    assert not torch.equal(first_N, again_N)
    assert not torch.equal(first_N, other_N)


@pytest.mark.parametrize("objective", ["plain", "cascade", "diffusion", "end_to_end"])
def test_blocks_of_every_objective_are_looked_at(objective: str) -> None:
    """From the context alone; a byte is one of 26 letters, of which fresh weights know nothing."""
    manifest = tiny_manifest(objective=objective, num_blocks=1)
    look = HeldOutProbe(manifest, 0, CPU, TEXT, seed=1)
    [nats_N] = look([tiny_weights(manifest, 0)])
    assert math.log(256) == pytest.approx(float(nats_N.mean()), abs=0.1)


def test_a_text_shorter_than_the_context_is_enough() -> None:
    """Two bytes make a window."""
    [nats_N] = probe(text=TEXT[:2])([tiny_weights(tiny_manifest(), 0)])
    assert bool(torch.isfinite(nats_N).all())
