"""bt_p2p.averaging.admission: which averages are adopted."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bt_p2p.averaging.admission import is_finite, reason_to_refuse, round_after
from bt_p2p.averaging.averager import GroupAverage, PartnerReport
from bt_p2p.protocol.limits import MAX_ROUND_LAG
from bt_p2p.testing.tiny import tiny_identity

OWN = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}
PEERS = [tiny_identity(index).peer_id for index in range(2)]


def average(weights: dict[str, Tensor] | None = None, rounds: tuple[int, ...] = (5,)):
    """A result with partners of these rounds."""
    reports = {
        peer: PartnerReport(round_index=index) for peer, index in zip(PEERS, rounds, strict=False)
    }
    return GroupAverage(weights=OWN if weights is None else weights, partners=reports)


@pytest.mark.parametrize("lag", [-MAX_ROUND_LAG, 0, MAX_ROUND_LAG])
def test_averages_of_near_rounds_are_adopted(lag: int) -> None:
    """Nothing to say against them."""
    assert "" == reason_to_refuse(average(rounds=(5, 5 + lag)), OWN, round_index=5)


@pytest.mark.parametrize(("lag", "word"), [(-4, "behind"), (4, "ahead"), (2**40, "ahead")])
def test_partners_of_another_age_are_named(lag: int, word: str) -> None:
    """One is enough, and the user learns which one."""
    expected = f"replica …{PEERS[1][-6:]} is {abs(lag)} rounds {word}, over the limit of 3"
    assert expected == reason_to_refuse(average(rounds=(5, 5 + lag)), OWN, round_index=5)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, "the average has other tensors than this block"),
        ({"a": OWN["a"]}, "the average has other tensors than this block"),
        ({**OWN, "c": OWN["b"]}, "the average has other tensors than this block"),
        ({**OWN, "b": torch.zeros(5)}, "tensor b of the average has shape (5,)"),
        ({**OWN, "a": torch.zeros(3, 2)}, "tensor a of the average has shape (3, 2)"),
        ({**OWN, "b": torch.full((4,), math.nan)}, "tensor b of the average is not finite"),
        ({**OWN, "a": torch.full((2, 3), -math.inf)}, "tensor a of the average is not finite"),
    ],
)
def test_averages_that_do_not_fit_are_refused(weights: dict[str, Tensor], expected: str) -> None:
    """Names, shapes, numbers."""
    assert expected == reason_to_refuse(average(weights), OWN, round_index=5)


def test_weights_are_finite_when_every_number_is() -> None:
    """A single NaN is enough."""
    assert is_finite(OWN)
    assert not is_finite({**OWN, "b": torch.tensor([0.0, math.nan])})
    assert not is_finite({"a": torch.tensor(math.inf)})


@pytest.mark.parametrize(
    ("rounds", "expected"), [((), 6), ((5,), 6), ((7,), 8), ((3, 4), 6), ((6, 8), 9)]
)
def test_the_next_round_follows_the_newest_member(rounds: tuple[int, ...], expected: int) -> None:
    """One more than the largest of all."""
    assert expected == round_after(average(rounds=rounds), round_index=5)
