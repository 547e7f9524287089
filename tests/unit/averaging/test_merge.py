"""bt_p2p.averaging.merge: no minority moves the result further than the honest are apart."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_p2p.averaging.merge import CLIP_RADIUS, ShareMerger, capped_weights, median

SIZE = 7
HONEST = st.floats(-2, 2, width=32)
ANYTHING = st.floats(allow_nan=False, allow_infinity=False, width=32)
SAMPLES = st.floats(1e-3, 1e9)


def vectors(values, count):
    return st.lists(
        st.lists(values, min_size=SIZE, max_size=SIZE), min_size=count, max_size=count
    ).map(lambda rows: [torch.tensor(row) for row in rows])


@st.composite
def groups(draw):
    """A group with a minority of attackers, at any places; the honest are where?"""
    size = draw(st.integers(3, 9))
    num_bad = draw(st.integers(0, (size - 1) // 2))
    honest = draw(vectors(HONEST, size - num_bad))
    bad = draw(vectors(ANYTHING, num_bad))
    order = draw(st.permutations(range(size)))
    members = [honest + bad, [True] * len(honest) + [False] * num_bad]
    parts, is_honest = ([column[index] for index in order] for column in members)
    return parts, is_honest, draw(st.lists(SAMPLES, min_size=size, max_size=size))


def merge(parts, weights=None, *, start=None, trust=None, own=0):
    merger = ShareMerger([1.0] * len(parts) if trust is None else trust, own)
    start = torch.zeros_like(parts[0]) if start is None else start
    merged = merger.merge(parts, [1.0] * len(parts) if weights is None else weights, start)
    return merged, merger.observations()


@settings(deadline=None, max_examples=150)
@given(groups())
def test_a_minority_of_attackers_keeps_the_result_within_the_honest_range(group) -> None:
    """No further from the honest than a few times as far as these are from one another."""
    parts, is_honest, weights = group
    honest = torch.stack([part for part, is_good in zip(parts, is_honest, strict=True) if is_good])
    merged, _ = merge(parts, weights)
    assert bool(torch.isfinite(merged).all())
    centre = median(torch.stack(parts).clamp(-1e15, 1e15))
    low, high = honest.min(dim=0).values, honest.max(dim=0).values
    assert bool((centre >= low - 1e-6).all())
    assert bool((centre <= high + 1e-6).all())
    furthest = float((honest - centre).norm(dim=1).max())
    assert float((merged - centre).norm()) <= CLIP_RADIUS * furthest + 1e-4


@settings(deadline=None, max_examples=50)
@given(vectors(ANYTHING, 4), st.integers(0, 3))
def test_what_is_said_of_members_is_finite_whatever_they_send(parts, own) -> None:
    """Nobody breaks the judgement of the others by numbers that overflow."""
    _, seen = merge(parts, own=own)
    assert {0, 1, 2, 3} - {own} == seen.keys()
    for each in seen.values():
        assert all(math.isfinite(v) for v in (each.distance, each.change, each.agreement))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_members_that_are_alike_get_their_weighted_mean_exactly(size: int) -> None:
    """Protection costs nothing where there is nothing to protect from."""
    generator = torch.Generator().manual_seed(3)
    parts = [torch.randn(1000, generator=generator) for _ in range(size)]
    weights = [1.0 + index / 2 for index in range(size)]
    merged, _ = merge(parts, weights)
    expected = sum(w * p.double() for w, p in zip(weights, parts, strict=True)) / sum(weights)
    torch.testing.assert_close(expected.float(), merged, rtol=0, atol=1e-6)


def test_the_result_keeps_the_shape_of_the_part() -> None:
    """hivemind checks it."""
    merged, _ = merge([torch.ones(2, 3), torch.ones(2, 3)])
    assert (2, 3) == merged.shape


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        ([1.0, 100.0], [1.0, 4.0]),
        ([3.0, 5.0, 9.0], [3.0, 5.0, 9.0]),
        ([1e9, 2.0, 3.0], [12.0, 2.0, 3.0]),
    ],
)
def test_nobody_counts_many_times_as_much_as_the_others(claimed, expected) -> None:
    """Whatever it claims; four times the lower median."""
    assert expected == capped_weights(claimed)


def test_who_is_not_trusted_is_not_heard_and_not_judged() -> None:
    """Nor is it part of the median."""
    parts = [torch.zeros(4), torch.ones(4), torch.full((4,), 1e6)]
    merged, seen = merge(parts, trust=[0.0, 1.0, 0.0], own=0)
    torch.testing.assert_close(torch.full((4,), 0.5), merged)
    assert [1] == list(seen)


def test_who_is_trusted_by_half_counts_half() -> None:
    """Between two members, where nothing is clipped."""
    merged, _ = merge([torch.zeros(4), torch.full((4,), 3.0)], trust=[1.0, 0.5])
    torch.testing.assert_close(torch.ones(4), merged)


def test_a_flipped_sign_is_seen_in_distance_and_direction() -> None:
    """Sums over parts, so that cutting a share into parts changes nothing."""
    generator = torch.Generator().manual_seed(5)
    start, common = torch.zeros(600), torch.full((600,), 1.0)
    parts = [common + torch.randn(600, generator=generator) for _ in range(5)]
    parts[4] = -parts[4]
    whole, pieces = ShareMerger([1.0] * 5, 0), ShareMerger([1.0] * 5, 0)
    whole.merge(parts, [1.0] * 5, start)
    for piece in (slice(0, 200), slice(200, 600)):
        pieces.merge([part[piece] for part in parts], [1.0] * 5, start[piece])
    honest, flipped = whole.observations()[1], whole.observations()[4]
    assert 0.9 < honest.distance < 1.2
    assert 1.7 < flipped.distance
    assert 0.4 < honest.agreement < 0.6
    assert -0.6 < flipped.agreement < -0.4
    assert honest.usual_agreement == flipped.usual_agreement == pytest.approx(0.5, abs=0.1)
    assert flipped.agreement == pytest.approx(pieces.observations()[4].agreement, abs=1e-4)
    assert flipped.distance == pytest.approx(pieces.observations()[4].distance, abs=1e-3)


def test_a_pair_is_measured_against_ourselves() -> None:
    """There is no majority; the change of the other over ours, and their direction."""
    start = torch.zeros(3)
    _, seen = merge(
        [torch.tensor([1.0, 0, 0]), torch.tensor([-3.0, 0, 0])], [2.0, 8.0], start=start
    )
    assert (0.0, 3.0, -1.0, 4.0) == (
        seen[1].distance,
        seen[1].change,
        seen[1].agreement,
        seen[1].claim,
    )
