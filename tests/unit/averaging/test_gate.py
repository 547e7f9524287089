"""When something is held against a replica, and who follows whom."""

from __future__ import annotations

import math

import pytest
import torch

from bt_p2p.averaging.averager import GroupAverage, PartnerReport
from bt_p2p.averaging.gate import Gate
from bt_p2p.averaging.memory import REFUSED_ROUNDS
from bt_p2p.averaging.merge import Observation
from bt_p2p.protocol.limits import MAX_ROUND_LAG

OWN = {"w": torch.zeros(4)}
AVERAGE = GroupAverage(
    weights={"w": torch.ones(4)}, partners={"peer": PartnerReport(round_index=0)}
)
GOOD, BAD = 0.9, 1.5
ELSEWHERE = Observation(distance=1.5, change=1.0, agreement=0.0, usual_agreement=0.5, claim=1.0)


class Scene:
    """A gate that scores the average, or the other's weights, as it is told."""

    def __init__(self) -> None:
        self.nats = GOOD
        self.gate = Gate(
            "me", lambda weights: [self.windows(), *[torch.ones(4)] * 2][: len(weights)]
        )

    def windows(self) -> torch.Tensor:
        return torch.full((4,), self.nats)

    def meet(self, *partners: str, **observations: Observation) -> None:
        """A round with some partners, whose average is good."""
        self.nats = GOOD
        average = GroupAverage(
            weights=AVERAGE.weights,
            partners={peer: PartnerReport(round_index=0) for peer in partners},
            observations=observations,
        )
        assert not self.gate.reason_to_refuse(average, OWN, OWN, round_index=0)
        self.gate.end_round(is_alone=False)

    def round(self, nats: float) -> bool:
        """Whether an average with that loss comes in."""
        self.nats = nats
        reason = self.gate.reason_to_refuse(AVERAGE, OWN, OWN, round_index=0)
        self.gate.end_round(is_alone=False)
        return not reason

    def is_refused_after(self, count: int) -> bool:
        """Whether the partner is refused after so many bad averages, and not before."""
        for _ in range(count):
            assert not self.gate.refused
            assert not self.round(BAD)
        return "peer" in self.gate.refused


def test_a_bad_average_with_a_stranger_is_held_against_nobody_once() -> None:
    """It may have trained apart. If that goes on, it is an attacker."""
    scene = Scene()
    assert {"peer"} == scene.gate.drifted(["peer"])
    assert scene.is_refused_after(3)
    assert not scene.gate.drifted(["peer"])


def test_a_bad_average_with_a_partner_of_the_round_before_counts_at_once() -> None:
    """Both began with the same weights."""
    scene = Scene()
    assert scene.round(GOOD)
    assert not scene.gate.drifted(["peer"])
    assert scene.is_refused_after(2)


@pytest.mark.parametrize("num_rounds", [MAX_ROUND_LAG, MAX_ROUND_LAG + 1])
def test_a_partner_not_met_for_some_rounds_may_have_drifted(num_rounds) -> None:
    scene = Scene()
    assert scene.round(GOOD)
    for _ in range(num_rounds):
        scene.gate.end_round(is_alone=True)
    assert (num_rounds >= MAX_ROUND_LAG) == bool(scene.gate.drifted(["peer"]))


def test_nobody_is_excused_again_and_again() -> None:
    """Only after as long as a refusal takes."""
    scene = Scene()
    scene.round(BAD)
    for _ in range(REFUSED_ROUNDS - 1):
        scene.gate.end_round(is_alone=True)
    assert not scene.gate.drifted(["peer"])
    scene.gate.end_round(is_alone=True)
    assert {"peer"} == scene.gate.drifted(["peer"])


@pytest.mark.parametrize(
    ("nats", "peer_id", "expected"),
    [
        (0.9, "a", True),
        (0.9, "z", True),
        (1.0, "a", True),
        (1.0, "z", False),
        (1.1, "a", False),
        (1.1, "z", False),
        (math.nan, "a", False),
    ],
)
def test_of_replicas_that_drifted_exactly_one_follows_the_other(nats, peer_id, expected) -> None:
    """Whose weights are worse; of those that are alike, the one with the higher id."""
    scene = Scene()
    scene.nats = nats
    assert expected == scene.gate.should_follow(AVERAGE.weights, OWN, peer_id=peer_id)


def test_who_moves_elsewhere_round_after_round_is_refused() -> None:
    """Its partners are not."""
    scene = Scene()
    for _ in range(8):
        scene.meet("good", "bad", bad=ELSEWHERE)
    assert {"bad"} == scene.gate.refused.keys()
    assert {"bad"} == scene.gate.trust.keys()


def test_who_comes_and_goes_is_not_taken_for_one_that_moves_elsewhere() -> None:
    """It was not in the average before, every other round for a long time."""
    scene = Scene()
    for _ in range(30):
        scene.meet("good", "away", away=ELSEWHERE)
        scene.meet("good")
    assert not scene.gate.refused


def test_after_a_round_alone_the_direction_of_the_others_says_less() -> None:
    """We are the one who missed their round."""
    scene = Scene()
    scene.meet("peer")
    scene.gate.end_round(is_alone=True)
    scene.meet("peer", peer=ELSEWHERE)
    apart = scene.gate.trust["peer"]
    scene.meet("peer", peer=ELSEWHERE)
    assert 2 * (1 - apart) < 1 - scene.gate.trust["peer"]


def test_who_was_late_is_left_out_of_the_next_round_only() -> None:
    """It is no offence."""
    gate = Scene().gate
    gate.leave_out({"a"})
    gate.end_round(is_alone=False)
    assert ({"a"}, {"a": 0.0}, {}) == (gate.left_out, gate.trust, gate.refused)
    gate.end_round(is_alone=False)
    assert (set(), {}) == (gate.left_out, gate.trust)


def test_blame_is_beyond_doubt() -> None:
    """Once is enough."""
    gate = Scene().gate
    gate.blame({"a": "sent malformed weights"})
    assert {"a": "sent malformed weights"} == gate.refused
    assert {"a": 0.0} == gate.trust
