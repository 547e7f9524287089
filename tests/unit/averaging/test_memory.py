"""bt_p2p.averaging.memory: suspicion adds up, fades, and ends in a refusal for a while."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.averaging.memory import REFUSE_AT, REFUSED_ROUNDS, Evidence, PeerMemory
from bt_p2p.protocol.limits import MAX_REMEMBERED_PEERS


def evidence(strength: float, reason: str = "did harm") -> Evidence:
    return Evidence(strength=strength, reason=reason)


def after(memory: PeerMemory, rounds: int) -> PeerMemory:
    for _ in range(rounds):
        memory.next_round()
    return memory


def test_a_stranger_is_trusted() -> None:
    """Nothing is known of it, so nothing is against it."""
    assert ({}, {}) == (PeerMemory().refused, PeerMemory().trust)


def test_who_is_suspected_counts_less_and_with_time_as_before() -> None:
    """In proportion; after some dozens of rounds nothing is left."""
    memory = PeerMemory()
    memory.note({"a": evidence(REFUSE_AT / 2)})
    assert {"a": 0.5} == memory.trust
    assert {} == memory.refused
    memory.next_round()
    assert 0.5 < memory.trust["a"] < 0.6
    assert {} == after(memory, 60).trust


def test_enough_evidence_is_a_refusal_for_some_rounds() -> None:
    """With the last reason; afterwards the peer is on probation."""
    memory = PeerMemory()
    memory.note({"a": evidence(REFUSE_AT / 2, "first")})
    memory.note({"a": evidence(REFUSE_AT / 2, "norm of change 40 x the usual")})
    assert {"a": "norm of change 40 x the usual"} == memory.refused
    assert {"a": 0.0} == memory.trust
    assert ["a"] == list(after(memory, REFUSED_ROUNDS - 1).refused)
    memory.next_round()
    assert {} == memory.refused
    assert {"a": 0.5} == memory.trust


def test_who_does_it_again_is_refused_for_twice_as_long() -> None:
    """Probation needs half as much, too."""
    memory = PeerMemory()
    memory.note({"a": evidence(REFUSE_AT)})
    after(memory, REFUSED_ROUNDS)
    memory.note({"a": evidence(REFUSE_AT / 2)})
    assert ["a"] == list(after(memory, 2 * REFUSED_ROUNDS - 1).refused)
    assert {} == after(memory, 1).refused


@pytest.mark.parametrize("strength", [0.0, -1.0, math.nan])
def test_no_evidence_is_no_suspicion(strength: float) -> None:
    """Nor is nonsense."""
    memory = PeerMemory()
    memory.note({"a": evidence(strength)})
    assert {} == memory.trust


def test_new_ids_without_end_do_not_fill_the_memory() -> None:
    """Those that are suspected most are kept."""
    memory = PeerMemory()
    memory.note({"bad": evidence(REFUSE_AT)})
    memory.note({f"p{index}": evidence(0.5) for index in range(2 * MAX_REMEMBERED_PEERS)})
    assert MAX_REMEMBERED_PEERS == len(memory.trust)
    assert ["bad"] == list(memory.refused)


@given(st.lists(st.floats(0, 0.25), max_size=100))
def test_little_things_now_and_then_never_add_up_to_a_refusal(strengths) -> None:
    """Chance is not malice: what fades faster than it comes stays below the threshold."""
    memory = PeerMemory()
    for strength in strengths:
        memory.note({"a": evidence(strength)})
        assert {} == memory.refused
        memory.next_round()
