"""The log file: it rotates, and a disk that does not take it ends nothing."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from node import log_setup
from node.log_setup import held_back, set_up_logging
from tests.small_disk import limited_files

LOGGER = logging.getLogger("node.test")


@pytest.fixture
def log_path(tmp_path: Path) -> Iterator[Path]:
    """A log in use; the handlers of the tests come back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    path = tmp_path / "node.log"
    set_up_logging(is_debugging=False, log_path=path)
    yield path
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_the_log_keeps_a_bounded_size(log_path, monkeypatch):
    """The newest lines, in a fixed number of files."""
    monkeypatch.setattr(logging.getLogger().handlers[0], "maxBytes", 1000)
    for number in range(200):
        LOGGER.info("line %d", number)
    names = sorted(path.name for path in log_path.parent.iterdir())
    assert ["node.log", "node.log.1", "node.log.2"] == names
    assert all(path.stat().st_size <= 1000 for path in log_path.parent.iterdir())
    assert "line 199" in log_path.read_text()
    assert log_setup._MAX_LOG_SIZE_BYTES * (1 + log_setup._NUM_OLD_LOGS) < 20_000_000


def test_a_full_disk_is_quiet_and_told_afterwards(log_path, capsys):
    """No traceback for each line; one line says how many are missing."""
    LOGGER.info("before")
    with limited_files(log_path.stat().st_size):
        for number in range(3):
            LOGGER.info("lost %d", number)
    LOGGER.info("after")
    assert ("", "") == capsys.readouterr()
    text = log_path.read_text()
    assert "before" in text
    assert "after" in text
    assert "the disk did not take 3 lines of this log" in text


def test_a_rotation_that_fails_is_made_up_for(log_path, monkeypatch, capsys):
    """The line is lost, the log goes on."""
    handler = logging.getLogger().handlers[0]

    def fail(source, destination):
        raise OSError(30, "Read-only file system")

    LOGGER.info("x" * 600)
    monkeypatch.setattr(handler, "maxBytes", 1000)
    monkeypatch.setattr(handler, "rotate", fail)
    LOGGER.info("y" * 600)
    monkeypatch.undo()
    LOGGER.info("after")
    assert ("", "") == capsys.readouterr()
    assert "after" in log_path.read_text()


def test_a_fault_in_a_line_is_still_shown(log_path, capsys):
    """Only the disk is forgiven."""
    record = LOGGER.makeRecord("node.test", logging.INFO, "file", 1, "%d", ("text",), None)
    logging.getLogger().handlers[0].handle(record)
    assert "Logging error" in capsys.readouterr().err


def test_lines_held_back_come_at_the_end(monkeypatch):
    """While a dashboard is on the terminal nothing is written over it; the last lines are kept."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with held_back():
        for number in range(60):
            LOGGER.warning("line %d", number)
        assert "" == written.getvalue()
    LOGGER.warning("after")
    lines = written.getvalue().splitlines()
    written.close()
    with held_back():  # a closed stream is left alone
        pass
    assert [f"line {number}" for number in range(10, 60)] + ["after"] == lines
