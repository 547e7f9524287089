"""node.standing: whether others can dial this node, in plain words."""

from __future__ import annotations

import pytest

from bt_p2p.swarm.dial_back import Reachability
from node.standing import standing_of

OWN = "/ip4/203.0.113.7/tcp/31337"


@pytest.mark.parametrize(
    ("found", "reachable", "part"),
    [
        (Reachability(verdict="yes", works=(OWN,)), "yes", OWN),
        (Reachability(verdict="unknown"), "unknown", "no other peer"),
        (Reachability(verdict="elsewhere", works=(OWN,)), "no", f"--announce {OWN}"),
        (
            Reachability(verdict="no", seen_at="203.0.113.7", reasons=("x: refused",)),
            "no",
            "x: refused; open TCP port 31337",
        ),
    ],
)
def test_the_standing_says_where_or_why_not_and_what_to_do(
    found: Reachability, reachable: str, part: str
) -> None:
    """An address that works but is not announced is no help to others."""
    told = standing_of(found, port=31337)
    assert reachable == told.reachable
    assert part in told.detail
