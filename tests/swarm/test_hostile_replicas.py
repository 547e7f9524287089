"""Replicas that bring harmful weights: the others stay sane, find out who it was, and leave it out."""

from __future__ import annotations

import time

import pytest

from bt_p2p.averaging.schedule import matchmaking_s
from bt_p2p.testing.tiny import tiny_manifest
from tests.swarm.names import unique_name

pytestmark = [pytest.mark.swarm, pytest.mark.slow, pytest.mark.timeout(120)]

ROUND_S = 4.0
SEARCH_S = matchmaking_s(ROUND_S) + 0.7


NOISE = 0.1
"""Of the make-believe training; its average is half of that."""


@pytest.fixture
def swarm_of(processes):
    """Peers with averagers of the same block."""

    def start(num_peers: int) -> list:
        manifest = tiny_manifest(unique_name(), round_s=ROUND_S).model_dump(mode="json")
        peers = [processes() for _ in range(num_peers)]
        for peer in peers:
            peer.ask(
                "open_averager", manifest=manifest, block=0, sizes=[150_000, 900], exchange_s=8.0
            )
        return peers

    return start


def run_round(peers: list, number: int, flips: list[float]) -> list[dict]:
    """One round of all; what each says of it."""
    ends_at_s = time.time() + SEARCH_S
    for peer, flip in zip(peers, flips, strict=True):
        peer.send("gated_round", number=number, ends_at_s=ends_at_s, flip=flip)
    return [peer.wait() for peer in peers]


def test_one_hostile_replica_among_four_is_named_and_harmless(swarm_of):
    """It brings ten times its change, backwards. Rounds that do not form for lack of time count not.

    hivemind may leave a member without a share of the average; that one sees nobody's weights.
    """
    *honest, hostile = swarm_of(4)
    rms_before = 1.1
    for number in range(12):
        answers = run_round([*honest, hostile], number, [0.0, 0.0, 0.0, 10.0])[:3]
        for answer in answers:
            # sane, and they get on, as far as the noise of their training lets them
            assert answer["rms"] < max(0.9 * rms_before, 3 * NOISE), answers
            assert answer["refused"].keys() <= {hostile.peer_id}, answers
        rms_before = max(answer["rms"] for answer in answers)
        reasons = [answer["refused"][hostile.peer_id] for answer in answers if answer["refused"]]
        # one that refuses it is enough to keep it out of the group of all
        if reasons and not any(hostile.peer_id in answer["partners"] for answer in answers):
            break
    else:
        pytest.fail(f"it was never refused: {answers}")
    for reason in reasons:  # the last of what was held against it
        assert "x as far from the group's as usual" in reason or "worse on held-out text" in reason


def test_the_honest_one_of_two_keeps_its_own_weights(swarm_of):
    """The other undoes every change, so that the mean of both stands still."""
    honest, hostile = swarm_of(2)
    refusals, rms_before = [], 1.1
    for number in range(8):
        answer = run_round([honest, hostile], number, [0.0, 1.0])[0]
        assert answer["rms"] < 0.8 * rms_before
        rms_before = answer["rms"]
        if hostile.peer_id in answer["refused"]:
            break
        refusals.append(answer["error"])
    else:
        pytest.fail(f"it was never refused: {answer}")
    assert any("worse than own weights on held-out text" in error for error in refusals)
    lonely = run_round([honest, hostile], 8, [0.0, 1.0])[0]
    assert ("no other replica was there in time", []) == (lonely["error"], lonely["partners"])
