"""Receipts: kept over restarts, and never a reason to stop."""

from __future__ import annotations

import json

import pytest

from bt_p2p.errors import BootstrapError, CheckpointError, ConfigError, SwarmError
from node.cli import app
from node.command_line import run_app
from node.doctor.finding import FindingError
from node.events.history import read_history
from node.join_failure import cause_of, record_failure
from node.receipts import RECEIPTS_NAME, Receipt, ReceiptBook, read_receipts
from node.resources import DiskShortError, MemoryShortError
from node.state_dir import NodeLock, StateDir
from tests.small_disk import limited_files


def add_round(book: ReceiptBook, run_id: str = "run-a", *, is_averaged: bool = True) -> Receipt:
    """A round of ten seconds."""
    return book.add(
        run_id,
        at_s=1000.0,
        is_averaged=is_averaged,
        samples=64,
        bytes_trained=4096,
        bytes_sent=300,
        bytes_received=200,
        trained_s=10.0,
    )


def test_a_restart_goes_on_counting(tmp_path):
    """By run."""
    for _ in range(2):
        book = ReceiptBook(tmp_path)
        book.try_join()
        book.enter("run-a", at_s=500.0)
        book.begin_training()
        add_round(book)
        add_round(book, is_averaged=False)
        book.first_contribution("run-a", 12.5)
    add_round(book, "run-b")
    receipts = read_receipts(tmp_path)
    assert (
        Receipt(
            num_starts=2,
            rounds=4,
            rounds_averaged=2,
            samples=256,
            bytes_trained=16384,
            bytes_sent=1200,
            bytes_received=800,
            trained_s=40.0,
            first_at_s=500.0,
            last_at_s=1000.0,
            first_contributions_s=[12.5, 12.5],
        )
        == receipts.runs["run-a"]
    )
    assert (1, 2, 2) == (
        receipts.runs["run-b"].rounds, receipts.joins_tried, receipts.joins_trained,
    )  # fmt: skip


def test_a_full_disk_stops_nothing_and_the_next_write_has_it_all(tmp_path):
    """The old file stays whole meanwhile."""
    book = ReceiptBook(tmp_path)
    add_round(book)
    with limited_files(10):
        add_round(book)
    assert 1 == read_receipts(tmp_path).runs["run-a"].rounds
    add_round(book)
    assert 3 == read_receipts(tmp_path).runs["run-a"].rounds


def test_a_damaged_file_is_moved_aside(tmp_path):
    """It is not overwritten, and the node goes on."""
    (tmp_path / RECEIPTS_NAME).write_text('{"runs": 3}')
    add_round(ReceiptBook(tmp_path))
    assert '{"runs": 3}' == (tmp_path / f"{RECEIPTS_NAME}.damaged").read_text()
    assert 1 == read_receipts(tmp_path).runs["run-a"].rounds


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (BootstrapError("nobody"), "no-peer-answers"),
        (SwarmError("no run"), "swarm"),
        (MemoryShortError("small"), "memory-short"),
        (DiskShortError("small"), "disk-short"),
        (CheckpointError("unreadable"), "disk-short"),
        (FindingError("in use", code="port-not-free"), "port-not-free"),
        (ConfigError("wrong"), "settings"),
        (ZeroDivisionError(), "fault"),
    ],
)
def test_each_failure_has_a_cause(error, cause):
    """By its type, or the doctor's code."""
    assert cause == cause_of(error)


def test_a_failed_join_is_counted_and_told(tmp_path):
    """In receipts and events."""
    state = StateDir(tmp_path)
    record_failure(state, BootstrapError("none of 1 initial peers answers"))
    assert {"no-peer-answers": 1} == read_receipts(tmp_path).join_failures
    (event,) = read_history(state.events_path).events
    assert ("join_failed", "no-peer-answers") == (event.kind, event.cause)


def test_a_join_beside_a_running_node_leaves_its_files_alone(tmp_path):
    """They are the running node's."""
    state = StateDir(tmp_path)
    with NodeLock(state):
        record_failure(state, ConfigError("a node already runs"))
    assert ["node.lock"] == [path.name for path in tmp_path.iterdir()]


def test_stats_are_text_or_json(tmp_path, monkeypatch, capsys):
    """For people and for programs."""

    def stats(*arguments: str) -> str:
        words = ["bt-node", "stats", "--state-dir", str(tmp_path), *arguments]
        monkeypatch.setattr("sys.argv", words)
        assert 0 == run_app(app, "bt-node")
        return capsys.readouterr().out

    assert f"nothing was given from {tmp_path} yet; begin with: bt-node join" in stats()
    book = ReceiptBook(tmp_path)
    book.try_join()
    book.fail_join("disk-short")
    book.enter("run-a", at_s=500.0)
    add_round(book)
    book.first_contribution("run-a", 12.5)
    text = stats()
    assert "1 round, 1 of them averaged with others; 0.00 hours in 1 start" in text
    assert "joins: 1 tried, 0 came to train, 1 failed (disk-short 1)" in text
    document = json.loads(stats("--json"))
    assert (64, {"disk-short": 1}) == (
        document["runs"]["run-a"]["samples"], document["join_failures"],
    )  # fmt: skip


def test_damaged_receipts_are_one_clear_error(tmp_path, monkeypatch, capsys):
    """`stats` moves nothing."""
    (tmp_path / RECEIPTS_NAME).write_text("{")
    monkeypatch.setattr("sys.argv", ["bt-node", "stats", "--state-dir", str(tmp_path)])
    assert 2 == run_app(app, "bt-node")
    error = capsys.readouterr().err
    assert f"{RECEIPTS_NAME} cannot be read" in error
    assert 1 == error.count("\n")
