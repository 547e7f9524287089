"""A small swarm to look at: fixed names, fixed times, nothing real."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, RenderableType

from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.manifest import ModelSpec, RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.snapshot import NodeSnapshot

NOW_S = 1_750_000_000.0
RUN_ID = f"story-{'abcdefghijklm' * 2}"


class NamedManifest(RunManifest):
    """A manifest whose id does not follow from its content, so that drawings stay the same."""

    @property
    def run_id(self) -> str:
        """Always the same."""
        return RUN_ID


def make_lease(number: int, block: int | None, **values: Any) -> Lease:
    """The lease of peer `number`, three seconds old unless said otherwise."""
    age_s = values.pop("age_s", 3.0)
    return Lease(
        **{
            "run_id": RUN_ID,
            "peer_id": f"12D3KooWpeer{number:06d}",
            "boot_id": "boot",
            "block": block,
            "state": "joining" if block is None else "training",
            "round_index": 12,
            "loss": 2.104,
            "bytes_per_s": 3200.0,
            "partners": 1,
            "addresses": ["/ip4/203.0.113.7/tcp/31337"],
            "issued_at_s": NOW_S - age_s,
            "expires_at_s": NOW_S - age_s + 30.0,
        }
        | values
    )


def make_swarm(leases: list[Lease], *, num_blocks: int = 3, num_invalid: int = 0) -> SwarmOverview:
    """An overview of these leases."""
    manifest = NamedManifest(name="story", model=ModelSpec(num_blocks=num_blocks))
    view = LeaseView(leases=tuple(leases), num_invalid=num_invalid)
    return make_overview(manifest, view, now_s=NOW_S)


def make_snapshot(**values: Any) -> NodeSnapshot:
    """A node that has trained block 1 for two hours; `warnings` are the evidence of one each."""
    values["noted"] = [
        *values.get("noted", []),
        *(Reason(code=ReasonCode.DISK_LOW, evidence=text) for text in values.pop("warnings", [])),
    ]
    return NodeSnapshot(
        **{
            "pid": 1234,
            "peer_id": "12D3KooWpeer000003",
            "run_id": RUN_ID,
            "block": 1,
            "state": "training",
            "device": "cpu",
            "started_at_s": NOW_S - 7200,
            "updated_at_s": NOW_S - 1,
            "round_index": 12,
            "round_ends_at_s": NOW_S + 14,
            "round_s": 30.0,
            "steps": 1234,
            "bytes_trained": 4_500_000,
            "loss": 2.044,
            "loss_history": [5.5, 4.1, 3.4, 3.0, 2.8, 2.6, 2.4, 2.3, 2.2, 2.15, 2.1, 2.06],
            "bytes_per_s": 3000.0,
            "rounds_averaged": 9,
            "rounds_alone": 2,
            "rounds_failed": 1,
            "last_average_at_s": NOW_S - 16,
            "last_partners": 1,
            "last_outcome": "averaged with 1 replica",
            "bytes_sent": 31_400_000,
            "requests_served": 12,
            "addresses": [
                "/ip4/203.0.113.7/tcp/31337/p2p/12D3KooWpeer000003",
                "/ip4/127.0.0.1/tcp/31337/p2p/12D3KooWpeer000003",
            ],
            "state_dir": "/home/ada/.local/state/bt-node",
        }
        | values
    )


def healthy_leases() -> list[Lease]:
    """Four peers on three blocks."""
    return [
        make_lease(1, 0),
        make_lease(2, 0, round_index=11, loss=2.2, age_s=8.0),
        make_lease(3, 1, loss=2.044, bytes_per_s=3000.0, age_s=1.0),
        make_lease(4, 2, loss=2.31, bytes_per_s=2800.0),
    ]


class SetClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        """Start at the moment of the drawings."""
        self.passed_s = 0.0

    def now_s(self) -> float:
        """Wall-clock seconds."""
        return NOW_S + self.passed_s

    def monotonic_s(self) -> float:
        """Seconds since the start."""
        return self.passed_s


@pytest.fixture
def clock() -> SetClock:
    """A clock that a test moves."""
    return SetClock()


@pytest.fixture
def now_s() -> float:
    """The moment at which everything is looked at."""
    return NOW_S


@pytest.fixture
def lease() -> Callable[..., Lease]:
    """Makes one lease."""
    return make_lease


@pytest.fixture
def swarm() -> Callable[..., SwarmOverview]:
    """Makes an overview from leases."""
    return make_swarm


@pytest.fixture
def healthy() -> SwarmOverview:
    """Four peers, three blocks, nothing wrong."""
    return make_swarm(healthy_leases())


@pytest.fixture
def node() -> Callable[..., NodeSnapshot]:
    """Makes a snapshot of this machine's node."""
    return make_snapshot


@pytest.fixture
def draw() -> Callable[..., str]:
    """Draws something as text, without trailing spaces."""

    def text_of(renderable: RenderableType, width: int, height: int) -> str:
        console = Console(file=io.StringIO(), width=width, height=height, legacy_windows=False)
        console.print(renderable)
        file = console.file
        assert isinstance(file, io.StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    return text_of
