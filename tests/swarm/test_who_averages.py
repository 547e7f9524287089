"""Who averages with whom: runs in one DHT never mix, and a closed run lets members in only."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bt_p2p.averaging.schedule import matchmaking_s
from bt_p2p.protocol.membership import issue_membership
from bt_p2p.testing.tiny import tiny_identity, tiny_manifest
from tests.swarm.names import unique_name

pytestmark = [pytest.mark.swarm, pytest.mark.slow, pytest.mark.timeout(120)]

ROUND_S = 4.0
SIZES = [10_000, 20_000]
TIMEOUT_S = 15.0


def test_replicas_average_with_those_of_their_own_run_only(processes) -> None:
    """Two of each run, at the same moment, through the same peer; the runs differ in their seed."""
    name = unique_name()
    runs = [tiny_manifest(name, seed=seed, round_s=ROUND_S) for seed in (0, 1)]
    peers = [processes() for _ in range(4)]
    run_of = [index % 2 for index in range(4)]
    for peer, run in zip(peers, run_of, strict=True):
        manifest = runs[run].model_dump(mode="json")
        peer.ask("open_averager", manifest=manifest, block=0, sizes=SIZES, exchange_s=8.0)
    ends_at_s = time.time() + matchmaking_s(ROUND_S) + 2.0
    for peer in peers:
        peer.ask("begin", round_index=1, ends_at_s=ends_at_s)
    for index, peer in enumerate(peers):
        own = [[other, 1] for other in range(4) if run_of[other] == run_of[index]]
        peer.send("finish", seed=index, samples=1, timeout_s=TIMEOUT_S, groups=[own])

    answers = [peer.wait(timeout_s=2 * TIMEOUT_S) for peer in peers]

    partners = [[peers[(index + 2) % 4].peer_id] for index in range(4)]
    assert [""] * 4 == [answer["error"] for answer in answers]
    assert partners == [answer["partners"] for answer in answers]
    assert [0] * 4 == [answer["group"] for answer in answers]


def test_a_stranger_does_not_average_in_a_closed_run(processes) -> None:
    """The members do; neither nothing nor the membership of another peer helps.

    A stranger whom members follow can cost them what is left of a search, but not the next one too.
    """
    owner = tiny_identity(1)
    manifest = tiny_manifest(unique_name(), round_s=ROUND_S)
    manifest = manifest.model_copy(update={"owner": owner.peer_id})
    peers = [processes() for _ in range(4)]
    until_s = int(time.time()) + 600
    shown = [
        issue_membership(owner, run_id=manifest.run_id, peer_id=peer_id, expires_at_s=until_s).hex()
        for peer_id in (peers[0].peer_id, peers[1].peer_id, peers[0].peer_id)
    ]
    for peer, membership in zip(peers, [*shown, ""], strict=True):
        peer.ask(
            "open_averager",
            manifest=manifest.model_dump(mode="json"),
            block=0,
            sizes=SIZES,
            exchange_s=8.0,
            membership=membership,
        )
    for number in range(1, 4):  # each of the two strangers may lead once
        answers = search(peers, number)
        assert [True, True] == [bool(answer["error"]) for answer in answers[2:]], answers
        for answer in answers[:2]:
            assert answer["group"] == 0 or answer["error"], answers
        if not any(answer["error"] for answer in answers[:2]):
            return
    pytest.fail(f"the members did not average in three rounds: {answers}")


def search(peers, number: int) -> list[dict[str, Any]]:
    """A round, at the end of which only the first two may be together."""
    ends_at_s = time.time() + matchmaking_s(ROUND_S) + 2.0
    for peer in peers:
        peer.ask("begin", round_index=number, ends_at_s=ends_at_s)
    for index, peer in enumerate(peers):
        peer.send("finish", seed=index, samples=1, timeout_s=TIMEOUT_S, groups=[[[0, 1], [1, 1]]])
    return [peer.wait(timeout_s=2 * TIMEOUT_S) for peer in peers]
