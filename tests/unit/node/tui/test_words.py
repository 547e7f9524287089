"""Facts as sentences."""

from __future__ import annotations

import math

import pytest

from node.reasons.code import ReasonCode, Severity
from node.reasons.reason import Reason
from node.tui.words import (
    address_words,
    invalid_words,
    is_loopback,
    is_stale,
    joining_words,
    last_words,
    loss_change_words,
    need_words,
    round_words,
    share_words,
    swarm_words,
    uncovered_words,
    warning_words,
    why_words,
)


def test_uncovered_block_comes_with_its_remedy(swarm, lease):
    """A hole names its block, the command that fills it, and that the rest goes on."""
    overview = swarm([lease(1, 0), lease(2, 1)])
    assert (
        "block 2 has no holder: bt-node join --block 2 --initial-peers ... serves it; "
        "covered blocks go on training"
    ) == uncovered_words(overview)


def test_several_uncovered_blocks_are_listed(swarm, lease):
    """Many holes are listed up to a point."""
    few = uncovered_words(swarm([lease(1, 0)], num_blocks=4))
    many = uncovered_words(swarm([lease(1, 0)], num_blocks=20))
    assert few.startswith("blocks 1, 2 and 3 have no holder: bt-node join --block 1 ")
    assert many.startswith("blocks 1, 2, 3, 4, 5 and 14 more have no holder: ")


def test_empty_swarm_asks_for_the_first_node(swarm):
    """Where nobody holds anything, nothing goes on training."""
    expected = "no block has a holder: bt-node join --initial-peers ... starts training"
    assert expected == uncovered_words(swarm([]))


def test_command_has_the_addresses_that_fit(swarm, lease):
    """Known addresses are part of the command, unless the line gets too long."""
    overview = swarm([lease(1, 0), lease(2, 1)])
    peers = ["/ip4/203.0.113.7/tcp/31337/p2p/12D3KooWx"]
    command = f"bt-node join --run {overview.manifest.run_id} --block 2 --initial-peers {peers[0]}"
    assert f": {command} serves it" in uncovered_words(overview, peers)
    assert "--initial-peers ... serves it" in uncovered_words(overview, peers, max_width=120)


def test_swarm_words_count_what_trains(swarm, lease):
    """Peers, covered blocks and speed are counted."""
    overview = swarm([lease(1, 0), lease(2, 0), lease(3, None)])
    assert "3 peers, 1/3 blocks training, 6.4 kB/s" == swarm_words(overview)


def test_thin_blocks_are_what_the_swarm_needs(swarm, lease):
    """Who does not take part yet is told how; holes are a warning of their own."""
    thin = swarm([lease(1, 0), lease(2, 0), lease(3, 1), lease(4, 2)])
    words = "needs a second holder of blocks 1 and 2"
    command = f"{words}: bt-node join --block 1 --initial-peers ..."
    assert [words, command, words] == [
        need_words(thin, mine="me"),
        need_words(thin, mine=None),
        need_words(thin, mine=None, max_width=60),
    ]
    full = swarm([lease(number, number % 3) for number in range(7)])
    assert "every block has at least 2 holders" == need_words(full, mine=None)
    assert "" == need_words(swarm([lease(1, 0)]), mine=None)


def test_share_tells_what_the_node_is_to_the_swarm(swarm, lease, node):
    """Its part of the speed, and whether others could do without it."""
    alone = swarm([lease(1, 0), lease(3, 1, bytes_per_s=800.0)], num_blocks=2)
    assert "20% of the swarm's speed, nobody else holds block 1" == share_words(node(), alone)
    several = swarm([lease(3, 1, bytes_per_s=0.0), lease(4, 1, bytes_per_s=0.0)], num_blocks=2)
    assert "one of 2 holders of block 1" == share_words(node(), several)


def test_share_is_unknown_until_others_see_the_node(swarm, lease, node):
    """Without an overview, in another run, or before its lease is there, nothing is claimed."""
    overview = swarm([lease(1, 1)])
    assert ["", "", "", ""] == [
        share_words(node(), None),
        share_words(node(), overview),
        share_words(node(run_id="other"), swarm([lease(3, 1)])),
        share_words(node(block=None), overview),
    ]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], ""),
        ([2.0], ""),
        ([2.5, 2.0], "0.500 lower than 1 round ago"),
        ([9.0] + [2.0] * 10 + [2.25], "0.250 higher than 10 rounds ago"),
        ([math.nan, 2.0], ""),
    ],
)
def test_change_of_the_loss_is_told_in_words(history, expected):
    """Over ten rounds at most, and only between numbers."""
    assert expected == loss_change_words(history)


def test_joining_peers_are_named(swarm, lease):
    """Peers that choose a block are listed; nobody is no words."""
    assert "joining: …000001, …000002" == joining_words(swarm([lease(1, None), lease(2, None)]))
    assert "" == joining_words(swarm([]))


def test_invalid_records_are_counted(swarm):
    """Refused records are mentioned if there are any."""
    assert ["", "1 invalid record ignored", "3 invalid records ignored"] == [
        invalid_words(swarm([], num_invalid=num)) for num in (0, 1, 3)
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"last_outcome": ""}, "no round finished yet"),
        ({}, "averaged with 1 replica, 16 s ago"),
        ({"last_outcome": "alone"}, "alone; last average 16 s ago"),
        (
            {"last_outcome": "alone", "last_average_at_s": None},
            "alone; never averaged yet",
        ),
    ],
)
def test_last_outcome_says_when_it_counted(node, now_s, values, expected):
    """The last round's outcome and the last average's age are told apart."""
    assert expected == last_words(node(**values), now_s=now_s)


@pytest.mark.parametrize(
    ("ends_in_s", "expected"),
    [
        (None, "12 rounds done"),
        (14.0, "round 13 ends in 14 s"),
        (-1.0, "round 13 is ending"),
        (float("nan"), "12 rounds done"),
    ],
)
def test_round_counts_down(node, now_s, ends_in_s, expected):
    """The time to the round's end is shown while it is ahead."""
    ends_at_s = None if ends_in_s is None else now_s + ends_in_s
    assert expected == round_words(node(round_ends_at_s=ends_at_s), now_s=now_s)


def test_silent_node_is_reported(node, now_s):
    """A process that lives but reports nothing is a warning; a fresh report is not."""
    assert [] == warning_words(node(), now_s=now_s)
    assert [] == warning_words(node(updated_at_s=0.0), now_s=now_s)
    assert [
        "silent: the node on this machine (process 1234) has reported nothing for 60 s; next: if it "
        "stays silent, stop it and start it again"
    ] == warning_words(node(updated_at_s=now_s - 60), now_s=now_s)


def test_warnings_have_codes_and_what_to_do(node, now_s):
    """The gravest first; those of one severity alone on demand."""
    noted = [
        Reason(code=ReasonCode.DISK_LOW, evidence="3 MB free"),
        Reason(code=ReasonCode.SAME_KEY_ELSEWHERE, evidence="seen at 203.0.113.9"),
        Reason(code=ReasonCode.AVERAGE_LATE, evidence="gave up after 9 s"),
    ]
    snapshot = node(noted=noted)
    grave, warned = warning_words(snapshot, now_s=now_s)
    assert grave.startswith("same-key-elsewhere: seen at 203.0.113.9; next: stop one of the two")
    assert "disk-low: 3 MB free; next: free space, or restart" in warned
    assert [grave] == warning_words(snapshot, severities={Severity.ERROR})


def test_idle_states_say_why(node, now_s):
    """A pause or a wait is no warning, but has its code; other rows are not repeated."""
    paused = node(state="paused", pause_words="the battery is below 30%")
    assert [
        "paused: the battery is below 30%; next: nothing; it goes on when the rule allows it, or "
        "with bt-node resume"
    ] == why_words(paused, now_s=now_s)
    fetching = {"state": "syncing", "sync": "2.0 of 3.4 MB"}
    assert [] == why_words(node(**fetching, reachable="relayed"), now_s=now_s)
    assert [] == why_words(node(), now_s=now_s)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/ip4/127.0.0.1/tcp/1", True),
        ("/ip4/127.9.9.9/tcp/1", True),
        ("/ip6/::1/tcp/1", True),
        ("/dns4/localhost/tcp/1", True),
        ("/ip4/192.168.1.5/tcp/1", False),
        ("/dns4/example.org/tcp/1", False),
        ("nonsense", False),
        ("", False),
    ],
)
def test_loopback_is_recognized(address, expected):
    """Addresses that no other machine can dial are told from the rest."""
    assert expected == is_loopback(address)


def test_address_is_short_unless_asked():
    """An address has a short peer id on screen, a full one where it may be copied."""
    address = "/ip4/127.0.0.1/tcp/31337/p2p/12D3KooWabcdef"
    assert [
        "/ip4/127.0.0.1/tcp/31337/p2p/…abcdef  this machine only",
        "/ip4/127.0.0.1/tcp/31337/p2p/12D3KooWabcdef  this machine only",
    ] == [address_words(address, full=full) for full in (False, True)]


def test_lease_is_stale_after_two_missed_renewals(lease, now_s):
    """Up to 25 seconds a lease is fresh."""
    assert [False, True] == [is_stale(lease(1, 0, age_s=age), now_s=now_s) for age in (25.0, 25.5)]
