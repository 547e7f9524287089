"""A node without neighbours dials more and more rarely, and is called isolated after a while."""

from __future__ import annotations

import random

from bt_p2p.protocol.limits import ISOLATED_AFTER_S, MAX_REDIAL_S, ROUTINE_REDIAL_S
from node.isolation import Isolation, redial_s

HOUR_S = 3600.0


def isolation() -> Isolation:
    """Of a node that has just entered a swarm, with repeatable chance."""
    found = Isolation(chance=random.Random(1))
    found.dialled(now_s=0.0)
    return found


def test_pauses_between_dials_double_up_to_a_minute() -> None:
    """However long it lasts."""
    chance = random.Random(0)

    assert all(1 <= redial_s(0, chance) <= 2 for _ in range(20))
    assert all(8 <= redial_s(3, chance) <= 16 for _ in range(20))
    assert all(redial_s(10_000, chance) <= MAX_REDIAL_S for _ in range(20))


def test_the_first_dial_is_at_once_and_an_hour_has_few() -> None:
    """And the user is told once the node has been alone for long enough."""
    state, dials, told_at_s = isolation(), 0, None
    for now_s in range(int(HOUR_S)):
        state.see(num_neighbours=0, num_known=3, now_s=now_s)
        if told_at_s is None and state.is_isolated(now_s):
            told_at_s = now_s
        if state.is_due(now_s):
            assert dials or now_s == 0
            dials += 1
            state.dialled(now_s=now_s)

    assert told_at_s == ISOLATED_AFTER_S
    assert HOUR_S / MAX_REDIAL_S < dials < 3 * HOUR_S / MAX_REDIAL_S


def test_a_neighbour_ends_the_isolation() -> None:
    """The next one begins with quick dials again."""
    state = isolation()
    for now_s in (1.0, 90.0):
        state.see(num_neighbours=0, num_known=1, now_s=now_s)
        state.dialled(now_s=now_s)
    assert state.is_isolated(90.0)

    state.see(num_neighbours=1, num_known=1, now_s=91.0)

    assert not state.is_isolated(1000.0)
    assert 0 == state.num_tries


def test_who_knows_nobody_is_not_isolated() -> None:
    """The first node of a run trains alone, and that is right."""
    state = isolation()

    state.see(num_neighbours=0, num_known=0, now_s=1.0)

    assert not state.is_isolated(HOUR_S)


def test_a_connected_node_dials_others_it_knows_now_and_then() -> None:
    """Two halves of a swarm that was cut in two find each other in this way."""
    state = isolation()
    state.see(num_neighbours=5, num_known=3, now_s=1.0)

    assert not state.is_due(ROUTINE_REDIAL_S / 2 - 1)
    assert state.is_due(ROUTINE_REDIAL_S)
