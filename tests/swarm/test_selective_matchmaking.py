"""A leader that brings strangers into a closed run's group is not followed again for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bt_p2p.protocol.limits import MAX_REMEMBERED_PEERS, STRANGER_PENALTY_S

pytestmark = pytest.mark.swarm

LEADER = b"leader"
OTHER = b"other"


class Bench:
    """A matchmaking whose requests a test answers, and whose time it sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from bt_p2p.swarm import reducing

        self.now_s = 1_000_000.0
        self.asked: list[bytes] = []
        self.bad = {LEADER}
        self.broken: dict[bytes, Exception] = {}

        async def request(_self: Any, leader: Any) -> str:
            self.asked.append(leader.to_bytes())
            if leader.to_bytes() in self.broken:
                raise self.broken[leader.to_bytes()]
            if leader.to_bytes() in self.bad:
                raise reducing.StrangerInGroupError("…abc has no membership of this closed run")
            return "group"

        def no_network(_self: Any) -> None:
            pass

        monkeypatch.setattr(reducing.Matchmaking, "__init__", no_network)
        monkeypatch.setattr(reducing.Matchmaking, "_request_join_group", request)
        monkeypatch.setattr(reducing, "get_dht_time", lambda: self.now_s)
        self.matchmaking = reducing.SelectiveMatchmaking()

    def request(self, *leaders: bytes) -> list[Any]:
        """What comes of asking one leader after another."""
        from bt_p2p.swarm.reducing import PeerID

        async def request_all() -> list[Any]:
            found = []
            for leader in leaders:
                self.now_s += 0.001
                found.append(await self.matchmaking._request_join_group(PeerID(leader)))
            return found

        return asyncio.run(request_all())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_leader_with_strangers_costs_no_error_and_is_not_asked_again(bench) -> None:
    """The search goes on to other leaders, in this round and in the next ones."""
    assert [None, "group", None] == bench.request(LEADER, OTHER, LEADER)
    assert [LEADER, OTHER] == bench.asked


def test_it_is_asked_again_later(bench) -> None:
    """A membership may have run out between the leader's look and ours."""
    bench.request(LEADER)
    bench.bad.clear()
    bench.now_s += STRANGER_PENALTY_S
    assert ["group"] == bench.request(LEADER)


def test_ever_new_leaders_do_not_fill_the_memory(bench) -> None:
    """The oldest is forgotten."""
    leaders = [b"%d" % number for number in range(MAX_REMEMBERED_PEERS + 1)]
    bench.bad.update(leaders)
    bench.request(*leaders)
    bench.asked.clear()
    bench.request(leaders[-1])
    assert [] == bench.asked
    bench.request(leaders[0])
    assert [leaders[0]] == bench.asked


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(), ConnectionResetError(), RuntimeError("the handler is closed")],
)
def test_a_leader_that_goes_away_does_not_end_the_search(bench, error) -> None:
    """The next one is asked, and itself again, since it may be back."""
    bench.broken[OTHER] = error
    assert [None] == bench.request(OTHER)
    bench.broken.clear()
    assert ["group"] == bench.request(OTHER)
