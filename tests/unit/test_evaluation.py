"""bt_p2p.evaluation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bt_p2p.errors import ConfigError
from bt_p2p.evaluation import Score, ScoreAccumulator, score_blocks, scoring_windows
from bt_p2p.model.block import initial_block
from bt_p2p.objective.compose import compose
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec, RunManifest

CONTEXT = 8


@pytest.mark.parametrize("num_bytes", [2, 8, 9, 10, 17, 33, 100])
@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_every_byte_but_the_first_is_scored_once(num_bytes, batch_size):
    """Byte i is its own index, so targets tell what was scored."""
    data = np.arange(num_bytes, dtype=np.uint8)
    scored: list[int] = []
    for batch in scoring_windows(data, CONTEXT, batch_size=batch_size):
        assert CONTEXT == batch.inputs_NT.shape[1]
        assert batch.inputs_NT.shape[0] <= batch_size
        targets = batch.targets_NT[batch.mask_NT]
        assert torch.equal(batch.inputs_NT[batch.mask_NT] + 1, targets)
        scored += targets.tolist()
    assert list(range(1, num_bytes)) == scored


def test_a_single_byte_cannot_be_scored():
    """One to read and one to predict."""
    with pytest.raises(ConfigError, match="1 bytes, need at least 2"):
        next(scoring_windows(np.zeros(1, dtype=np.uint8), CONTEXT))


def test_scores_are_means_over_the_masked_bytes():
    """Two blocks, two batches of different size, against loops."""
    generator = torch.Generator().manual_seed(0)
    accumulator = ScoreAccumulator(2)
    nats: list[list[float]] = [[], [], []]
    for shape in [(3, 4), (1, 4)]:
        log_probs = [
            torch.log_softmax(torch.randn(*shape, 256, generator=generator), -1) for _ in range(2)
        ]
        targets_NT = torch.randint(0, 256, shape, generator=generator)
        mask_NT = torch.rand(shape, generator=generator) < 0.7
        accumulator.add(log_probs, targets_NT, mask_NT)
        for which, each in enumerate([*log_probs, compose(log_probs)]):
            nats[which] += [
                -each[n, t, targets_NT[n, t]].item()
                for n in range(shape[0])
                for t in range(shape[1])
                if mask_NT[n, t]
            ]
    score = accumulator.score()
    expected = [sum(each) / len(each) for each in nats]
    assert expected == pytest.approx([*score.per_block_nats, score.final_nats], abs=1e-5)
    assert len(nats[0]) == score.num_bytes


def test_bits_are_nats_over_ln_2():
    """Bits per byte, as papers print them."""
    score = Score(per_block_nats=(1.0,), final_nats=math.log(2), num_bytes=1)
    assert 1.0 == score.bits_per_byte


def test_a_missing_block_is_refused():
    """A composition of fewer blocks is another model."""
    with pytest.raises(ValueError, match="of 1 blocks, expected 2"):
        ScoreAccumulator(2).add([torch.zeros(1, 1, 256)], torch.zeros(1, 1), torch.ones(1, 1))


def test_nothing_has_no_score():
    """Not zero, not nan."""
    with pytest.raises(ValueError, match="nothing was scored"):
        ScoreAccumulator(1).score()


@pytest.mark.parametrize("name", ["plain", "diffusion"])
def test_untrained_blocks_score_about_the_logarithm_of_256(name):
    """And the composition of blocks is no worse than their mean."""
    manifest = RunManifest(
        model=ModelSpec(d_model=16, num_heads=2, num_blocks=3, layers_per_block=1, context=CONTEXT),
        objective=ObjectiveSpec.model_validate({"name": name, "sweep_max_bytes": 4}),
    )
    blocks = [initial_block(manifest, index) for index in range(3)]
    data = np.arange(100, dtype=np.uint8)
    score = score_blocks(manifest, blocks, data)
    assert (3, 99) == (len(score.per_block_nats), score.num_bytes)
    assert math.log(256) == pytest.approx(score.final_nats, abs=0.05)
    assert score.final_nats <= sum(score.per_block_nats) / 3


def test_the_size_of_batches_does_not_matter():
    """Scores of a text are the same however its windows are batched."""
    manifest = RunManifest(
        model=ModelSpec(d_model=16, num_heads=2, num_blocks=1, layers_per_block=1, context=CONTEXT),
        objective=ObjectiveSpec(sweep_max_bytes=4),
    )
    block = initial_block(manifest, 0)
    data = np.arange(50, dtype=np.uint8)
    whole = score_blocks(manifest, [block], data).final_nats
    accumulator = ScoreAccumulator(1)
    with torch.inference_mode():
        for batch in scoring_windows(data, CONTEXT, batch_size=1):
            log_probs = torch.log_softmax(block(batch.inputs_NT).logits_BTV, -1)
            accumulator.add([log_probs], batch.targets_NT, batch.mask_NT)
    assert whole == pytest.approx(accumulator.score().final_nats, abs=1e-6)


@pytest.mark.parametrize("name", ["plain", "cascade", "diffusion"])
def test_generation_is_scored_from_pure_noise(name):
    """Where nothing is handed on it is what the context says; the noise of diffusion shows."""
    manifest = RunManifest(
        model=ModelSpec(d_model=16, num_heads=2, num_blocks=2, layers_per_block=1, context=CONTEXT),
        objective=ObjectiveSpec.model_validate({"name": name, "sweep_max_bytes": 4}),
    )
    blocks = [initial_block(manifest, index) for index in range(2)]
    data = np.arange(100, dtype=np.uint8)

    def score(noise):
        return score_blocks(manifest, blocks, data, noise=noise).final_nats

    seeded = [score(torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert seeded[0] == seeded[1]
    is_noisy = name == "diffusion"
    assert is_noisy == (seeded[0] != seeded[2])
    assert is_noisy == (seeded[0] != score(None))
    assert math.log(256) == pytest.approx(seeded[0], abs=0.5)
