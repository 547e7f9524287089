"""The log has a line when a reason begins and one when it is over; the snapshot stays young."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bt_p2p.testing.clock import ManualClock
from node.reasons.code import ReasonCode
from node.reasons.watch import ReasonWatch
from node.record import NodeRecord
from node.snapshot import NodeSnapshot


@pytest.fixture
def clock() -> ManualClock:
    """Moved by tests."""
    return ManualClock()


@pytest.fixture
def record(tmp_path: Path, clock: ManualClock) -> NodeRecord:
    """Of a node that averages."""
    snapshot = NodeSnapshot(pid=1, peer_id="me", run_id="run", state="averaging", rounds_averaged=1)
    return NodeRecord(tmp_path, snapshot, clock)


def test_a_reason_is_logged_when_it_begins_and_when_it_is_over(record, clock, caplog) -> None:
    """Once each, with its code, its evidence and what to do."""
    watch = ReasonWatch(record, clock)
    with caplog.at_level(logging.INFO, logger="node.reasons.watch"):
        watch.look()
        record.note(ReasonCode.CLOCK_OFF, "your clock is 47 s ahead")
        watch.look()
        record.note(ReasonCode.CLOCK_OFF, "your clock is 48 s ahead")
        watch.look()
        record.clear(ReasonCode.CLOCK_OFF)
        watch.look()
    begun, over = [each.getMessage() for each in caplog.records]
    assert begun.startswith("reason clock-off: your clock is 47 s ahead; next: turn on time sync")
    assert "reason clock-off: over" == over
    assert [logging.WARNING, logging.INFO] == [each.levelno for each in caplog.records]


def test_a_node_whose_training_hangs_still_reports(record, clock) -> None:
    """Others tell a stalled node from a frozen one."""
    watch = ReasonWatch(record, clock)
    clock.advance(100)
    watch.look()
    assert clock.now_s() == record.snapshot.updated_at_s


def test_a_noted_reason_keeps_the_time_of_its_beginning(record, clock) -> None:
    """New evidence is not a new beginning, and an empty one takes it back."""
    begun_s = clock.now_s()
    record.show(ReasonCode.DISK_LOW, "3 MiB")
    clock.advance(5)
    record.show(ReasonCode.DISK_LOW, "2 MiB")
    [reason] = record.snapshot.noted
    assert (begun_s, "2 MiB") == (reason.since_s, reason.evidence)
    record.show(ReasonCode.DISK_LOW, "")
    assert [] == record.snapshot.noted
