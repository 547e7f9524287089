"""When a broken program is replaced by itself, how soon, and when it gives up."""

from __future__ import annotations

import random

import pytest

from bt_p2p.errors import SwarmError
from bt_p2p.protocol.limits import HEALTHY_AFTER_S, MAX_REBUILD_S, MAX_REBUILDS_IN_A_ROW
from node.rebuild import Rebuild, Supervisor, next_rebuild
from node.stop import StopRequest


def after(before: Rebuild | None, *, ran_s: float = 5.0, seed: int = 0) -> Rebuild | None:
    """The rebuild that follows."""
    return next_rebuild(before, "deaf", ran_s=ran_s, kept={"port": "7"}, chance=random.Random(seed))


def row(length: int) -> list[Rebuild]:
    """Rebuilds one soon after the other."""
    found: list[Rebuild] = []
    for _ in range(length):
        following = after(found[-1] if found else None)
        assert following is not None
        found.append(following)
    return found


def test_pauses_double_up_to_a_minute() -> None:
    """Half of each is chance, so that nodes that broke together do not start together."""
    rebuilds = row(MAX_REBUILDS_IN_A_ROW)

    longest_s = [1, 2, 4, 8, 16, 32, MAX_REBUILD_S, MAX_REBUILD_S]
    assert list(range(1, 9)) == [rebuild.num_in_a_row for rebuild in rebuilds]
    for rebuild, most_s in zip(rebuilds, longest_s, strict=True):
        assert most_s / 2 <= rebuild.delay_s <= most_s
    assert 1 < len({rebuild.delay_s for seed in range(3) if (rebuild := after(None, seed=seed))})


def test_a_node_that_breaks_again_and_again_gives_up() -> None:
    """One that has run well in between does not."""
    worn_out = row(MAX_REBUILDS_IN_A_ROW)[-1]

    assert after(worn_out) is None
    fresh = after(worn_out, ran_s=HEALTHY_AFTER_S)
    assert fresh is not None
    assert (1, MAX_REBUILDS_IN_A_ROW + 1) == (fresh.num_in_a_row, fresh.num_total)


def test_what_is_kept_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the environment, out of which it is taken; damage there is ignored."""
    following = after(None)
    assert following is not None
    monkeypatch.setenv("BT_NODE_REBUILD", following.model_dump_json())

    assert following == Supervisor(StopRequest(), print).last
    assert Supervisor(StopRequest(), print).last is None

    monkeypatch.setenv("BT_NODE_REBUILD", '{"reason": 3')
    assert Supervisor(StopRequest(), print).last is None


def test_a_first_start_that_fails_is_told_not_repeated() -> None:
    """The user is there to act on it."""

    def fail() -> None:
        raise SwarmError("nobody answers")

    with pytest.raises(SwarmError, match="nobody answers"):
        Supervisor(StopRequest(), print).run(fail)


def test_a_signal_in_the_pause_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started, and the exit code is that of the signal."""
    rebuild = Rebuild(reason="deaf", num_in_a_row=1, num_total=1, delay_s=600, kept={})
    monkeypatch.setenv("BT_NODE_REBUILD", rebuild.model_dump_json())
    stop = StopRequest()
    stop.signal_number = 2
    stop.event.set()
    started: list[bool] = []

    assert 130 == Supervisor(stop, print).run(lambda: started.append(True))
    assert [] == started
