"""bt_p2p.averaging.evidence: what speaks against whom."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from bt_p2p.averaging.averager import GroupAverage, PartnerReport, Share
from bt_p2p.averaging.evidence import (
    HeldOutScores,
    against_partners,
    against_reducers,
    against_sender,
    late_senders,
    loss_of_average,
)
from bt_p2p.averaging.memory import REFUSE_AT
from bt_p2p.averaging.merge import Observation

HONEST = Observation(distance=1.0, change=1.0, agreement=0.65, usual_agreement=0.65, claim=1.0)
PAIR = Observation(distance=0.0, change=1.0, agreement=0.45, usual_agreement=1.0, claim=1.0)


@pytest.mark.parametrize(
    ("progress", "late"),
    [
        ({"me": 3, "a": 3, "b": 2}, {"b"}),
        ({"me": 3, "a": 3, "b": 2, "c": 0}, {"b", "c"}),
        ({"me": 1, "a": 1, "b": 1}, set()),
        ({"me": 3, "a": 2, "b": 2}, set()),
        ({"me": 0, "a": 1, "b": 1}, set()),
        ({"me": 1, "a": 0}, set()),
        ({"me": 0}, set()),
    ],
    ids=["one", "two", "nobody", "all others", "oneself", "a pair", "alone"],
)
def test_who_is_behind_the_others_was_late(progress: dict[str, int], late: set[str]) -> None:
    """But who sees all others behind is slow itself, and of two nobody knows which."""
    assert late == late_senders(progress, own_id="me")


@pytest.mark.parametrize(
    "seen",
    [
        HONEST,
        replace(HONEST, distance=2.6, change=0.02, agreement=0.1, claim=1 / 15),
        replace(HONEST, distance=1.6, agreement=0.3),
        replace(HONEST, agreement=-0.2, usual_agreement=0.05),
        PAIR,
        replace(PAIR, agreement=0.0),
        replace(PAIR, change=12.0, claim=15.0),
    ],
    ids=["alike", "slow", "missed a round", "all disagree", "pair", "unlike", "fast pair"],
)
def test_honest_replicas_are_not_suspected(seen: Observation) -> None:
    """Nor are slow ones, and those that missed a round."""
    assert against_sender(seen, was_with_us=True) is None


@pytest.mark.parametrize(
    ("seen", "reason", "least"),
    [
        (replace(HONEST, distance=10.0), "its weights are 10.0 x as far from the group's", 1.5),
        (replace(HONEST, distance=40.0), "its weights are 40.0 x as far from the group's", 3.0),
        (replace(HONEST, agreement=-0.65), "its weights move against the group's", 1.6),
        (replace(HONEST, agreement=0.02), "its weights move elsewhere than the group's", 0.9),
        (replace(HONEST, change=0.0, agreement=0.0), "its weights do not change as", 0.5),
        (replace(PAIR, agreement=-0.45), "its weights move against ours", 0.3),
        (replace(PAIR, change=40.0), "norm of change 40.0 x the usual", 3.0),
        (replace(PAIR, change=40.0, claim=1e9), "norm of change 40.0 x the usual", 1.4),
    ],
    ids=["far", "very far", "flip", "elsewhere", "stale", "pair flip", "pair far", "claim"],
)
def test_attacks_speak_against_their_sender(seen, reason: str, least: float) -> None:
    """The reason is for the user; the strength is what `memory` adds up."""
    found = against_sender(seen, was_with_us=True)
    assert found is not None
    assert found.reason.startswith(reason)
    assert least <= found.strength <= REFUSE_AT


def test_the_direction_of_who_missed_the_last_average_says_less() -> None:
    """It started elsewhere. Weights that are far away are far away all the same."""
    elsewhere = replace(HONEST, agreement=0.0)
    [now, later] = [against_sender(elsewhere, was_with_us=known) for known in (True, False)]
    assert now.strength == pytest.approx(3 * later.strength)
    assert now.may_be_drift


@pytest.mark.parametrize(
    "seen", [replace(HONEST, distance=40.0), replace(HONEST, agreement=-0.6)], ids=["far", "flip"]
)
def test_what_no_honest_replica_does_is_no_drift(seen: Observation) -> None:
    """Wherever it comes from."""
    found = against_sender(seen, was_with_us=False)
    assert found == against_sender(seen, was_with_us=True)
    assert not found.may_be_drift


def shares_of(average, *, own=1.0, size=8):
    """A group of two that trained from 0 to 1; we made the first half of the average."""
    own_weights = {"w": torch.full((size,), own)}
    result = GroupAverage(
        weights={"w": torch.tensor(average)},
        partners={"other": PartnerReport(round_index=0)},
        shares=(Share(peer_id="me", num_elements=4), Share(peer_id="other", num_elements=4)),
    )
    return against_reducers(result, own_weights, {"w": torch.zeros(size)}, peer_id="me")


def test_shares_that_move_alike_are_honest() -> None:
    """The share of the other one is like ours."""
    assert {} == shares_of([0.9] * 4 + [0.8] * 4)


def test_a_share_that_moves_far_more_than_ours_is_its_reducers_fault() -> None:
    """Whoever made it is named."""
    found = shares_of([0.9] * 4 + [30.0] * 4)
    assert ["other"] == list(found)
    assert "its share of an average moved" in found["other"].reason
    assert REFUSE_AT == found["other"].strength


def test_a_share_that_moves_backwards_is_its_reducers_fault() -> None:
    """Though it does not move far."""
    found = shares_of([0.9] * 4 + [-0.9] * 4)
    assert "moves against what all members trained" in found["other"].reason


def test_who_has_not_trained_judges_no_share() -> None:
    """There is nothing to compare."""
    assert {} == shares_of([0.9] * 4 + [30.0] * 4, own=0.0)


def scores(average: float, own: float = 2.0, start: float = 2.1, spread: float = 0.01):
    noise = spread * torch.tensor([-1.0, 1.0] * 32)
    return HeldOutScores(
        average_N=torch.full((64,), average) + noise,
        own_N=torch.full((64,), own),
        start_N=torch.full((64,), start),
    )


@pytest.mark.parametrize(
    ("average", "is_worse"), [(1.9, False), (2.0, False), (2.02, False), (2.1, True), (9.0, True)]
)
def test_an_average_may_lose_a_quarter_of_what_was_learned(average: float, is_worse: bool) -> None:
    """Here of 0.1 nats; the start itself, as an attacker with flipped signs makes it, is too bad."""
    excess, error = loss_of_average(scores(average))
    assert is_worse == (excess > error)


def test_what_may_be_chance_is_not_held_against_an_average() -> None:
    """Windows that differ much say little."""
    excess, error = loss_of_average(scores(2.03, spread=0.5))
    assert 0 < excess < error


def test_a_loss_that_is_not_finite_is_too_bad() -> None:
    """NaN compares with nothing."""
    excess, error = loss_of_average(scores(math.nan))
    assert excess > error
    excess, error = loss_of_average(scores(2.0, own=math.nan))
    assert excess < error


def test_partners_share_the_suspicion_of_a_bad_average() -> None:
    """Between two there is only one who can have done it."""
    assert {} == against_partners(0.01, 0.02, ("a",), {})
    [alone] = against_partners(0.5, 0.01, ("a",), {}).values()
    both = against_partners(0.5, 0.01, ("a", "b"), {"a": HONEST, "b": HONEST})
    assert {"a", "b"} == both.keys()
    assert alone.strength == 2 * both["a"].strength
    assert alone.strength >= REFUSE_AT / 2
    assert 0 < against_partners(math.inf, 0.0, ("a",), {})["a"].strength <= REFUSE_AT


def test_who_agrees_least_is_suspected_most_of_a_bad_average() -> None:
    """Those that agree as usual are not."""
    seen = {"good": HONEST, "bad": replace(HONEST, agreement=0.3)}
    found = against_partners(0.5, 0.01, ("good", "bad"), seen)
    assert {"bad"} == found.keys()
    assert found["bad"].strength >= REFUSE_AT / 2
