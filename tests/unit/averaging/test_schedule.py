"""bt_p2p.averaging.schedule: rounds by the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.averaging.schedule import (
    average_timeout_s,
    late_partner_s,
    look_starts_s,
    matchmaking_s,
    matchmaking_starts_s,
    next_round_end_s,
    payload_size_bytes,
)
from bt_p2p.protocol.limits import MATCHMAKING_S, MIN_TRANSFER_BYTES_PER_S
from bt_p2p.testing.clock import START_S

ROUNDS_S = st.floats(1, 86400)
MOMENTS_S = st.floats(START_S, START_S + 1e6)


@pytest.mark.parametrize(
    ("now_s", "expected"),
    [(60.0, 90.0), (61.0, 90.0), (75.0, 90.0), (75.1, 120.0), (89.9, 120.0), (90.0, 120.0)],
)
def test_rounds_end_at_the_next_multiple_at_least_half_a_round_away(
    now_s: float, expected: float
) -> None:
    """Whoever comes in the second half trains through the next round."""
    assert expected == next_round_end_s(now_s, 30.0)


@given(MOMENTS_S, ROUNDS_S)
def test_round_ends_are_multiples_and_not_far(now_s: float, round_s: float) -> None:
    """Between a half and one and a half rounds away."""
    end_s = next_round_end_s(now_s, round_s)
    assert round(end_s / round_s) * round_s == end_s
    assert round_s / 2 <= end_s - now_s <= 1.5 * round_s + 1e-6


@given(st.integers(1, 2**30), st.floats(1, 3600), st.floats(0.01, 0.98))
def test_all_replicas_compute_the_same_moment(number: int, round_s: float, share: float) -> None:
    """Late in one round or early in the next: the float is the same, not only the number."""
    boundary_s = number * round_s
    late_s = boundary_s - share * round_s / 2
    early_s = boundary_s + share * round_s / 2
    assert next_round_end_s(early_s, round_s) == next_round_end_s(late_s, round_s)


@given(MOMENTS_S, ROUNDS_S)
def test_matchmaking_starts_before_the_end(end_s: float, round_s: float) -> None:
    """Long enough to find each other, and never most of the round."""
    lead_s = end_s - matchmaking_starts_s(end_s, round_s)
    assert matchmaking_s(round_s) < lead_s
    assert lead_s <= round_s
    assert matchmaking_s(round_s) <= min(MATCHMAKING_S, round_s / 4)


@pytest.mark.parametrize(("round_s", "expected"), [(4.0, 1.0), (12.0, 3.0), (600.0, 3.0)])
def test_matchmaking_is_capped(round_s: float, expected: float) -> None:
    """A quarter of a short round."""
    assert expected == matchmaking_s(round_s)


def test_deadlines_grow_with_the_weights_not_with_the_group() -> None:
    """Everybody sends about twice its weights, however many there are."""
    size = 10 * MIN_TRANSFER_BYTES_PER_S
    assert 5.0 == average_timeout_s(0, 2, 60.0)
    assert average_timeout_s(size, 2, 60.0) == average_timeout_s(size, 50, 60.0)
    assert average_timeout_s(size, 2, 60.0) < average_timeout_s(2 * size, 2, 60.0)


@given(st.integers(1, 2**30), st.floats(10, 3600))
def test_an_average_that_fails_does_not_cost_the_next_round(number: int, round_s: float) -> None:
    """At its deadline there is over half of the next round left; weights are small beside a round."""
    end_s = number * round_s
    size_bytes = int(0.19 * round_s * MIN_TRANSFER_BYTES_PER_S / 4)
    late_s = end_s + average_timeout_s(size_bytes, 2, round_s)
    assert (number + 1) * round_s == next_round_end_s(late_s, round_s)


@given(st.integers(1, 2**30), st.floats(1, 3600), st.floats(0, 0.1))
def test_who_waited_in_vain_is_in_time_for_the_next_end(
    number: int, round_s: float, share: float
) -> None:
    """A little late, too: two replicas that miss every other end would take turns for ever."""
    late_s = number * round_s + late_partner_s(round_s) + share * round_s
    assert (number + 1) * round_s == next_round_end_s(late_s, round_s)


@given(MOMENTS_S, ROUNDS_S)
def test_replicas_look_around_before_they_search(end_s: float, round_s: float) -> None:
    """In time for peers that do not answer to be known, and well after the last round's average."""
    search_s = matchmaking_starts_s(end_s, round_s)
    look_s = look_starts_s(end_s, round_s)
    assert look_s < search_s
    if round_s >= 10:
        assert end_s - look_s <= round_s * 2 / 3


@pytest.mark.parametrize(
    ("size", "group", "expected"), [(100, 1, 0), (100, 2, 100), (100, 4, 150), (1000, 10, 1800)]
)
def test_each_member_sends_two_shares_of_everybody_else(
    size: int, group: int, expected: int
) -> None:
    """2 (n - 1) / n of the vector; alone nothing."""
    assert expected == payload_size_bytes(size, group)


@given(st.integers(1, 10**12), st.integers(1, 1000))
def test_payloads_stay_below_twice_the_weights(size: int, group: int) -> None:
    """What average_timeout_s counts on."""
    assert 0 <= payload_size_bytes(size, group) < 2 * size
