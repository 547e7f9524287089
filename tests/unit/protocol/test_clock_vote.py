"""Who is told that their clock is wrong."""

from __future__ import annotations

import pytest

from bt_p2p.protocol.clock_vote import clock_problem


@pytest.mark.parametrize(
    "leads_s", [[], [1.5], [0.1, -0.2], [0.0, 47.0], [0.0, 0.1, -900.0], [0.2, 60.0, 60.0, 0.1]]
)
def test_a_majority_agrees_with_us(leads_s: list[float]) -> None:
    """Wrong clocks of others are theirs to mend."""
    assert "" == clock_problem(leads_s)


def test_the_odd_one_out_is_told_how_far_off() -> None:
    """In plain words, with what to do."""
    assert (
        "your clock is 47 s ahead of the swarm (3 peers asked); rounds are by the clock: turn on "
        "time synchronisation" == clock_problem([-47.0, -47.2, -46.9])
    )
    assert clock_problem([600.0, 600.4]).startswith("your clock is 600 s behind the swarm")


def test_one_liar_among_three_others_moves_nothing() -> None:
    """The median of all clocks is right."""
    assert "" == clock_problem([0.1, 0.0, 1e9])


@pytest.mark.parametrize("leads_s", [[47.0], [0.0, 47.0, 47.0]])
def test_between_two_halves_nobody_can_tell(leads_s: list[float]) -> None:
    """Both are told, and that one of them is wrong."""
    assert "one" in clock_problem(leads_s)
    assert "wrong" in clock_problem(leads_s)
    assert clock_problem([-lead_s for lead_s in leads_s])
