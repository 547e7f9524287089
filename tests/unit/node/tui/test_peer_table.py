"""Rows of the table of peers."""

from __future__ import annotations

import pytest

from bt_p2p.protocol.lease import BlockCopy
from node.tui.canvas import WARN
from node.tui.peer_table import clamp_first, peer_rows, sorted_peers


def test_own_peer_and_those_in_trouble_come_first(swarm, lease, now_s):
    """Then block by block, newest round first; who chooses a block is last."""
    overview = swarm(
        [
            lease(1, 0, round_index=11),
            lease(2, 0),
            lease(3, 1),
            lease(4, 1, age_s=27.0),
            lease(5, 1, round_index=2),
            lease(6, None),
            lease(7, 2),
        ]
    )
    peers = sorted_peers(overview, mine="12D3KooWpeer000007", now_s=now_s)
    assert [7, 4, 5, 2, 1, 3, 6] == [int(lease.peer_id[-6:]) for lease in peers]


def test_peer_behind_says_how_far(swarm, lease, now_s):
    """A few rounds are normal; more than replicas average over is a warning."""
    overview = swarm([lease(1, 0), lease(2, 0, round_index=10), lease(3, 0, round_index=2)])
    rows = peer_rows(overview, mine=None, now_s=now_s)
    rounds = {row["peer"].plain: row["round"] for row in rows}
    assert {"…000001": "12", "…000002": "10 (-2)", "…000003": "2 (-10)"} == {
        name: text.plain for name, text in rounds.items()
    }
    assert (WARN, "") == (rounds["…000003"].style, rounds["…000002"].style)


def test_stale_relayed_and_copying_peers_are_told(swarm, lease, now_s):
    """A lease that was not renewed counts for more than what it says."""
    overview = swarm(
        [
            lease(1, 0, age_s=27.0, is_relayed=True),
            lease(
                2, 1, copies=[BlockCopy(block=0, round_index=3), BlockCopy(block=2, round_index=1)]
            ),
        ]
    )
    first, second = peer_rows(overview, mine=None, now_s=now_s)
    assert ("stale", "27 s", "relayed") == tuple(
        first[title].plain for title in ("state", "age", "reach")
    )
    assert ("direct", "0, 2") == (second["reach"].plain, second["serves copies of"].plain)


def test_newcomers_are_not_behind(swarm, lease, now_s):
    """Who chooses a block, or fetches one, has no round yet and is in no trouble."""
    fetching = lease(3, 1, state="joining", round_index=0)
    overview = swarm([lease(1, 0), lease(2, 1), fetching, lease(4, None)])
    rows = peer_rows(overview, mine=None, now_s=now_s)
    assert [
        ("…000001", "0", "training", "12"),
        ("…000002", "1", "training", "12"),
        ("…000003", "1", "joining", "-"),
        ("…000004", "-", "joining", "-"),
    ] == [tuple(row[key].plain for key in ("peer", "block", "state", "round")) for row in rows]


@pytest.mark.parametrize(("first", "expected"), [(-3, 0), (0, 0), (7, 7), (8, 8), (900, 8)])
def test_window_stays_on_the_rows(first, expected):
    """It never begins before the first row, nor so late that rows are missing at its end."""
    assert expected == clamp_first(first, 10, 2)


def test_window_on_few_rows_begins_at_the_first():
    """Where all rows fit, nothing scrolls."""
    assert 0 == clamp_first(5, 3, 7)
