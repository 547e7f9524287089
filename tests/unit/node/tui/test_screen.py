"""A whole terminal, painted line by line."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from node.tui.screen import Screen

SIZE = ConsoleDimensions(20, 4)


class Written(io.StringIO):
    """Keeps what is written, piece by piece."""

    def __init__(self):
        super().__init__()
        self.pieces = []

    def write(self, text):
        if text:
            self.pieces.append(text)
        return super().write(text)


@pytest.fixture
def console():
    """A terminal of 20x4 characters in memory."""
    return Console(
        file=Written(), force_terminal=True, width=20, height=4, _environ={"TERM": "xterm"}
    )


def test_only_changed_lines_are_written_and_in_one_piece(console):
    """The second drawing writes its new line alone, the third one nothing."""
    with Screen(console) as screen:
        screen.paint(Text("one\ntwo"), SIZE)
        num_pieces = len(console.file.pieces)
        screen.paint(Text("one\ntoo"), SIZE)
        screen.paint(Text("one\ntoo"), SIZE)
        new = console.file.pieces[num_pieces:]
    assert ["\x1b[?2026h\x1b[2;1H" + "too".ljust(20) + "\x1b[?2026l"] == new


def test_nothing_is_erased_before_it_is_drawn(console):
    """No drawing contains a clear, of the screen or of a line, so nothing flickers."""
    with Screen(console) as screen:
        for text in ("one\ntwo", "three", ""):
            screen.paint(Text(text), SIZE)
    assert not re.search(r"\x1b\[\d*[JK]", console.file.getvalue())


def test_every_line_fills_the_width(console):
    """Shorter lines cover what stood there; longer ones and further ones are cut."""
    with Screen(console) as screen:
        screen.paint(Text("x" * 30 + "\n1\n2\n3\n4\n5", no_wrap=True, overflow="crop"), SIZE)
    lines = re.findall(r"\x1b\[\d;1H([^\x1b]*)", console.file.getvalue())
    assert ["x" * 20, *(f"{number}".ljust(20) for number in (1, 2, 3))] == lines


def test_all_is_painted_again_after_forgetting(console):
    """What another program wrote over is repaired."""
    with Screen(console) as screen:
        screen.paint(Text("one"), SIZE)
        screen.forget()
        screen.paint(Text("one"), SIZE)
    assert 2 == console.file.getvalue().count("one")


def test_terminal_that_is_gone_can_be_left(console):
    """Leaving never fails, and is done once."""
    screen = Screen(console)
    screen.enter()
    console.file.close()
    screen.leave()
    screen.leave()
