"""A short life of a node, as events."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bt_p2p.testing.tiny import tiny_manifest
from node.events.event import (
    AverageMade,
    BlockChosen,
    Event,
    FirstContribution,
    PeerJoined,
    PeerSeen,
    ReasonBegan,
    RoundFinished,
    Started,
    StateChanged,
    Stopped,
    SwarmSeen,
)

MANIFEST = tiny_manifest()
START_S = 1_750_000_000.0
ME, OTHER = "12D3KooWpeer000001", "12D3KooWpeer000002"


def started(at_s: float = START_S, **changes: object) -> Started:
    """A program has entered the swarm."""
    fields = {
        "at_s": at_s,
        "run_id": MANIFEST.run_id,
        "peer_id": ME,
        "pid": 4321,
        "program": "0.1.0",
        "manifest": MANIFEST.model_dump(mode="json"),
        "round_s": 10.0,
    }
    return Started(**fields | changes)


def round_finished(number: int, at_s: float, **changes: object) -> RoundFinished:
    """A round of block 0 is over."""
    fields = {
        "at_s": at_s,
        "block": 0,
        "round": number,
        "outcome": "averaged",
        "words": "averaged with 1 replica",
        "loss": 5.0 / number,
        "partners": 1,
        "bytes_per_s": 1000.0,
        "steps": 10 * number,
        "bytes_trained": 10_000 * number,
        "bytes_sent": 500 * number,
        "requests_served": number,
    }
    return RoundFinished(**fields | changes)


def seen(peer_id: str, block: int, **changes: object) -> PeerSeen:
    """What a peer says of itself."""
    fields = {
        "peer_id": peer_id,
        "block": block,
        "state": "training",
        "round": 3,
        "loss": 2.0,
        "bytes_per_s": 100.0,
        "partners": 1,
        "is_relayed": False,
    }
    return PeerSeen(**fields | changes)


def a_life() -> list[Event]:
    """Alone, a second peer, two rounds, a warning; still running."""
    return [
        started(),
        StateChanged(at_s=START_S + 1, state="joining"),
        BlockChosen(at_s=START_S + 3, block=0, before=None),
        StateChanged(at_s=START_S + 3, state="training"),
        PeerJoined(at_s=START_S + 4, peer_id=OTHER, block=1),
        SwarmSeen(at_s=START_S + 4, num_peers=2, peers=[seen(ME, 0), seen(OTHER, 1, loss=3.0)]),
        round_finished(1, START_S + 10),
        AverageMade(at_s=START_S + 10, round=1, partners=1),
        FirstContribution(at_s=START_S + 10, after_s=10.0),
        ReasonBegan(
            at_s=START_S + 12, code="disk-low", severity="warning", words="only 3 MiB are free"
        ),
        round_finished(2, START_S + 20),
    ]


@pytest.fixture
def life() -> list[Event]:
    """See `a_life`."""
    return a_life()


@pytest.fixture
def stopped() -> Callable[[float], Event]:
    """Makes the end of a program."""
    return lambda at_s: Stopped(at_s=at_s, reason="signal 15")
