"""From snapshots to reasons: each state has its code, with evidence, and a healthy node has none."""

from __future__ import annotations

from typing import Any

import pytest

from bt_p2p.protocol.limits import (
    FIRST_STEP_S,
    MIN_STALL_S,
    ROUNDS_WITHOUT_AVERAGE,
    SILENT_AFTER_S,
    STALL_STEPS,
    TOKEN_WARNING_S,
)
from node.reasons.code import ReasonCode, Severity
from node.reasons.judge import reasons_of, silence_of
from node.reasons.reason import Reason
from node.snapshot import NodeSnapshot

NOW_S = 1_750_000_000.0


def node(**values: Any) -> NodeSnapshot:
    """A node that trains block 1, steps each half second, and averaged in its last round."""
    return NodeSnapshot(
        **{
            "pid": 1234,
            "peer_id": "12D3KooWpeer000003",
            "run_id": "story",
            "block": 1,
            "state": "training",
            "updated_at_s": NOW_S - 1,
            "last_step_at_s": NOW_S - 1,
            "usual_step_s": 0.5,
            "rounds_averaged": 9,
            "last_average_at_s": NOW_S - 16,
            "last_outcome": "averaged with 1 replica",
        }
        | values
    )


def codes(snapshot: NodeSnapshot, now_s: float | None = NOW_S) -> list[str]:
    """Of all reasons of a node."""
    return [reason.code.value for reason in reasons_of(snapshot, now_s=now_s)]


def test_a_node_that_trains_and_averages_has_no_reason() -> None:
    """Nothing is said where nothing is to be said."""
    assert [] == codes(node())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"state": "starting"}, "starting"),
        ({"state": "joining", "block": None}, "choosing-block"),
        ({"state": "syncing", "sync": "12 of 40 MB"}, "waiting-for-weights"),
        ({"state": "paused"}, "paused"),
        ({"state": "rebuilding"}, "rebuilding"),
        ({"state": "leaving"}, "leaving"),
        ({"rounds_averaged": 0, "last_outcome": ""}, "first-round"),
        ({"reachable": "relayed"}, "relayed-only"),
        ({"token_expires_at_s": NOW_S + TOKEN_WARNING_S}, "token-expires-soon"),
        ({"token_expires_at_s": NOW_S}, "token-expired"),
    ],
)
def test_a_state_has_its_code(values: dict[str, Any], expected: str) -> None:
    """An idle node says what it is idle for, and with what it was let in."""
    assert [expected] == codes(node(**values))


def test_a_token_that_is_good_for_long_is_no_reason() -> None:
    """Weeks before its end nobody has to act."""
    assert [] == codes(node(token_expires_at_s=NOW_S + TOKEN_WARNING_S + 1))


@pytest.mark.parametrize(
    ("usual_step_s", "patience_s"),
    [(None, FIRST_STEP_S), (0.01, MIN_STALL_S), (10.0, 10.0 * STALL_STEPS)],
)
def test_a_node_is_stalled_after_many_usual_steps(
    usual_step_s: float | None, patience_s: float
) -> None:
    """Not before a least time, and a first step may take longer."""
    late = node(usual_step_s=usual_step_s, last_step_at_s=NOW_S - patience_s - 1)
    in_time = node(usual_step_s=usual_step_s, last_step_at_s=NOW_S - patience_s)
    assert (["stalled-no-step"], []) == (codes(late), codes(in_time))
    [reason] = reasons_of(late, now_s=NOW_S)
    assert reason.evidence.startswith("no training step for ")
    assert NOW_S - patience_s - 1 == reason.since_s


@pytest.mark.parametrize("state", ["syncing", "averaging", "paused"])
def test_a_node_that_need_not_step_is_not_stalled(state: str) -> None:
    """Only training is judged by its steps."""
    assert "stalled-no-step" not in codes(node(state=state, last_step_at_s=NOW_S - 1e6))


def test_a_frozen_node_is_silent_for_whoever_knows_the_time() -> None:
    """Its own snapshot cannot say so."""
    frozen = node(
        updated_at_s=NOW_S - SILENT_AFTER_S - 1, last_step_at_s=NOW_S - SILENT_AFTER_S - 1
    )
    assert ["silent"] == [code for code in codes(frozen) if code == "silent"]
    assert [] == codes(frozen, now_s=None)
    assert silence_of(node(), now_s=NOW_S) is None


@pytest.mark.parametrize(
    ("code", "averaged", "num_rounds", "expected"),
    [
        ("alone-no-partner", 0, 100, ["alone-no-partner"]),
        ("alone-no-partner", 9, ROUNDS_WITHOUT_AVERAGE - 1, ["alone-no-partner"]),
        ("alone-no-partner", 9, ROUNDS_WITHOUT_AVERAGE, ["no-average-lately", "alone-no-partner"]),
        ("partner-late", 0, ROUNDS_WITHOUT_AVERAGE, ["no-average-lately", "partner-late"]),
        ("average-refused", 9, 1, ["average-refused"]),
        ("average-refused", 9, 7, ["no-average-lately", "average-refused"]),
    ],
)
def test_rounds_without_an_average_are_a_warning_when_there_are_partners(
    code: str, averaged: int, num_rounds: int, expected: list[str]
) -> None:
    """A first node may be alone for ever; one that has or had partners may not for long."""
    snapshot = node(
        last_code=ReasonCode(code),
        rounds_averaged=averaged,
        rounds_alone=1,
        rounds_since_average=num_rounds,
        last_outcome="dropped: some reason",
    )
    assert expected == codes(snapshot)


def test_the_gravest_reason_comes_first() -> None:
    """Errors, then warnings, then notes; what was noted is among them."""
    noted = [
        Reason(code=ReasonCode.DISK_LOW, evidence="1 MiB"),
        Reason(code=ReasonCode.SAME_KEY_ELSEWHERE, evidence="at 203.0.113.7"),
    ]
    found = reasons_of(node(noted=noted, reachable="relayed"), now_s=NOW_S)
    assert ["same-key-elsewhere", "disk-low", "relayed-only"] == [each.code for each in found]
    assert [Severity.ERROR, Severity.WARNING, Severity.NOTE] == [each.severity for each in found]
