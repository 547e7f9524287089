"""bt_p2p.objective.plain and end_to_end."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.objective.plain import mask_suffixes
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import MASK_TOKEN, ObjectiveSpec


def masked_lengths(spec: ObjectiveSpec, num_sequences: int, num_tokens: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    inputs_BT = torch.randint(0, 256, (num_sequences, num_tokens), generator=generator)
    tokens_BT = mask_suffixes(inputs_BT, spec, generator)
    is_masked_BT = tokens_BT == MASK_TOKEN
    assert torch.equal(inputs_BT[~is_masked_BT], tokens_BT[~is_masked_BT])
    lengths_B = is_masked_BT.sum(1)
    is_suffix_BT = torch.arange(num_tokens) >= num_tokens - lengths_B[:, None]
    assert torch.equal(is_suffix_BT, is_masked_BT)
    return lengths_B.tolist()


def test_masks_are_suffixes_of_the_stated_share_and_lengths():
    """A quarter of the sequences, lengths uniform in 1..8."""
    lengths = masked_lengths(ObjectiveSpec(sweep_fraction=0.25, sweep_max_bytes=8), 8000, 16)
    chosen = [length for length in lengths if length]
    assert len(chosen) / 8000 == pytest.approx(0.25, abs=0.02)
    assert set(range(1, 9)) == set(chosen)
    for length in range(1, 9):
        assert chosen.count(length) / len(chosen) == pytest.approx(1 / 8, abs=0.03)


@pytest.mark.parametrize(("fraction", "expected"), [(0.0, 0), (1.0, 50)])
def test_the_share_may_be_none_or_all(fraction, expected):
    """Both ends of the range are exact."""
    lengths = masked_lengths(ObjectiveSpec(sweep_fraction=fraction, sweep_max_bytes=4), 50, 8)
    assert expected == sum(length > 0 for length in lengths)


def test_the_first_byte_is_never_masked():
    """Even when the input is shorter than the longest mask."""
    lengths = masked_lengths(ObjectiveSpec(sweep_fraction=1.0, sweep_max_bytes=32), 200, 5)
    assert {1, 2, 3, 4} == set(lengths)


def test_masks_follow_the_generator():
    """Same state, same masks; the inputs are left alone."""
    spec = ObjectiveSpec(sweep_fraction=0.5)
    inputs_BT = torch.zeros(32, 64, dtype=torch.int64)
    first, second = (
        mask_suffixes(inputs_BT, spec, torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert 0 == inputs_BT.max().item()


@pytest.mark.parametrize("name", ["plain", "end_to_end"])
def test_loss_is_the_mean_over_all_positions(manifest_of, stirred_block, name):
    """Masked positions weigh the same as the others."""
    manifest = manifest_of(name)
    block, objective = stirred_block(manifest), make_objective(manifest, 0)
    generator = torch.Generator().manual_seed(0)
    inputs_BT, targets_BT = torch.randint(0, 256, (2, 6, 12), generator=generator)
    result = objective.loss(block, inputs_BT, targets_BT, torch.Generator().manual_seed(1))
    tokens_BT = mask_suffixes(inputs_BT, manifest.objective, torch.Generator().manual_seed(1))
    log_probs_BTV = objective.read(block, tokens_BT, 0).log_probs_NPV
    nats = [-log_probs_BTV[b, i, targets_BT[b, i]].item() for b in range(6) for i in range(12)]
    assert sum(nats) / len(nats) == pytest.approx(result.loss.item(), abs=1e-4)


@pytest.mark.parametrize("name", ["plain", "end_to_end"])
def test_plain_blocks_hand_on_nothing(manifest_of, stirred_block, name):
    """So they may be asked in parallel."""
    manifest = manifest_of(name)
    block, objective = stirred_block(manifest), make_objective(manifest, 0)
    assert (name, False) == (objective.name, objective.is_sequential("advance"))
    assert objective.initial_noise(2, 3, torch.Generator()) is None
    tokens_NT = torch.zeros(2, 12, dtype=torch.int64)
    step = objective.advance(block, tokens_NT, 9, None)
    assert step.z_NPZ is None
    assert torch.equal(objective.read(block, tokens_NT, 9).log_probs_NPV, step.log_probs_NPV)
