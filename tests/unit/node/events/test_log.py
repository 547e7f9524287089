"""The log of events: lines, a bounded size, and disks that do not take them."""

from __future__ import annotations

import threading
from pathlib import Path

from bt_p2p.testing.clock import ManualClock
from node.events.event import Resumed, Saved, Started
from node.events.history import read_history, read_log
from node.events.log import EventLog, old_path
from tests.small_disk import limited_files
from tests.unit.node.events.conftest import started


def saved(number: int) -> Saved:
    """One small event."""
    return Saved(at_s=1.0, block=0, round=number)


def rounds(path: Path) -> list[int]:
    """Of the events of this kind in a file."""
    return [event.round for event in read_history(path).events if isinstance(event, Saved)]


def test_what_is_written_is_read_again(tmp_path, life):
    """Every kind comes back as it was."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, ManualClock())
    for event in life:
        log.write(event)
    assert life == read_history(path).events


def test_the_log_keeps_a_bounded_size_and_each_file_can_be_read_alone(tmp_path):
    """The newest events, in three files that begin with the start of the program."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, ManualClock(), max_size_bytes=2000)
    log.write(started())
    for number in range(300):
        log.write(saved(number))
    assert [f"events.jsonl{end}" for end in ("", ".1", ".2")] == sorted(
        each.name for each in tmp_path.iterdir()
    )
    for number in range(3):
        file = old_path(path, number)
        assert file.stat().st_size < 2000 + 200
        first = read_history(file).events[0]
        assert isinstance(first, Started)
        assert first.is_repeated
    kept = [event.round for event in read_log(path).events if isinstance(event, Saved)]
    assert list(range(kept[0], 300)) == kept


def test_a_full_disk_stops_nothing_and_is_told_afterwards(tmp_path):
    """Lost lines are counted; half a line is ended by the next one."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, ManualClock())
    log.write(saved(0))
    with limited_files(path.stat().st_size + 10):
        for number in range(1, 4):
            log.write(saved(number))
    log.write(saved(4))
    history = read_history(path)
    assert [0, 4] == rounds(path)
    assert [3] == [event.num for event in history.events if event.kind == "lines_lost"]
    assert {"damaged line": 1} == history.skipped


def test_a_folder_that_is_gone_stops_nothing(tmp_path):
    """And once it is back, so is the log."""
    path = tmp_path / "gone" / "events.jsonl"
    log = EventLog(path, ManualClock())
    log.write(saved(1))
    path.parent.mkdir()
    log.write(saved(2))
    assert ["lines_lost", "saved"] == [event.kind for event in read_history(path).events]


def test_half_a_line_of_a_killed_program_spoils_no_other(tmp_path):
    """The next program ends it first."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(saved(1).model_dump_json().encode() + b'\n{"version":1,"ki')
    EventLog(path, ManualClock()).write(saved(2))
    assert [1, 2] == rounds(path)


def test_threads_do_not_mix_their_lines(tmp_path):
    """Each line is whole."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, ManualClock())

    def write() -> None:
        for _ in range(50):
            log.write(Resumed(at_s=1.0))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    history = read_history(path)
    assert (200, {}) == (len(history.events), history.skipped)
