"""What is typed."""

from __future__ import annotations

import os
import pty
import termios
import threading
from pathlib import Path

import pytest

from node.tui.keys import Keys, parse_keys


@pytest.fixture
def terminal():
    """Both ends of a terminal: where one types, and what the program reads."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        try:
            os.close(end)
        except OSError:
            assert end == ours  # a test hung up


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (b"jk q", ["down", "up", "page down", "quit"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (
            b"\x1b[5~\x1b[6~gG\x1b[H\x1b[F",
            ["page up", "page down", "first", "last", "first", "last"],
        ),
        (b"\x0c\x04", ["redraw", "quit"]),
        (b"\x1b[1;5A\x1b[200~xyz\xff\x00\x1b", []),
        (b"", []),
    ],
)
def test_keys_are_told_apart_from_noise(typed, expected):
    """Arrows of both kinds, letters, and nothing for what means nothing."""
    assert expected == parse_keys(typed)


def test_key_is_read_without_enter_and_settings_come_back(terminal):
    """Line mode and echo are off only while keys are read."""
    ours, theirs = terminal
    before = termios.tcgetattr(theirs)
    with Keys(theirs) as keys:
        during = termios.tcgetattr(theirs)
        os.write(ours, b"q")
        assert ["quit"] == keys.wait(10.0, threading.Event())
    assert 0 == during[3] & (termios.ICANON | termios.ECHO)
    assert during[3] & termios.ISIG
    assert before == termios.tcgetattr(theirs)


def test_terminal_that_hangs_up_does_not_spin(terminal):
    """After the end of input only the event is waited for."""
    ours, theirs = terminal
    stop = threading.Event()
    with Keys(theirs) as keys:
        os.close(ours)
        assert [] == keys.wait(10.0, stop)
        stop.set()
        assert [] == keys.wait(10.0, stop)


def test_without_a_terminal_there_are_no_keys():
    """The event ends the wait at once."""
    stop = threading.Event()
    stop.set()
    with Path(os.devnull).open("rb") as null:
        for descriptor in (None, null.fileno()):
            with Keys(descriptor) as keys:
                assert [] == keys.wait(10.0, stop)
