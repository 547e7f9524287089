"""The console, and what it can do."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from node.tui.terminal import can_redraw, is_ascii, make_console


class FakeTerminal(io.StringIO):
    """Text memory that claims to be a terminal."""

    def isatty(self):
        """Always."""
        return True


def stream(encoding, errors="strict"):
    """A stream like standard output, in memory."""
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)


def written(file):
    """What was written to such a stream."""
    file.flush()
    return file.buffer.getvalue().decode(file.encoding)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", False),
        ("UTF-16", False),
        ("ascii", True),
        ("ANSI_X3.4-1968", True),
        ("latin-1", True),
        ("gbk", True),
    ],
)
def test_only_unicode_streams_are_not_ascii(encoding, expected):
    """Everything but the Unicode encodings is treated as ASCII."""
    assert expected == is_ascii(stream(encoding))


def test_stream_without_encoding_takes_everything():
    """Memory has no encoding and needs none; an unknown encoding is not trusted."""

    class Odd:
        encoding = "no-such-encoding"

    assert [False, False, True] == [is_ascii(file) for file in (io.StringIO(), None, Odd())]


def test_piped_output_is_neither_cut_nor_coloured(monkeypatch):
    """In a pipe long lines stay whole and styles leave no escape codes."""
    monkeypatch.setattr("sys.stdout", stream("utf-8"))
    console = make_console()
    console.print(Text("long " * 60 + "end", style="bold red"))
    console.print("[bold]literal[/] :smile:")
    text = written(console.file)
    assert "long " * 60 + "end\n[bold]literal[/] :smile:\n" == text


def test_ascii_output_never_fails(monkeypatch):
    """Characters that the stream lacks become question marks."""
    monkeypatch.setattr("sys.stderr", stream("ascii"))
    console = make_console(stderr=True)
    console.print("caf\u00e9 …")
    assert "caf? ?\n" == written(console.file)


def test_no_color_removes_colour_only(monkeypatch):
    """With NO_COLOR a terminal still gets bold, but no colour."""
    monkeypatch.setattr("sys.stdout", FakeTerminal())
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = make_console()
    console.print(Text("x", style="bold red"))
    assert "\x1b[1mx\x1b[0m\n" == console.file.getvalue()


def test_forced_colour_does_not_make_a_terminal(monkeypatch):
    """FORCE_COLOR colours a pipe, but nothing is redrawn in it."""
    monkeypatch.setattr("sys.stdout", stream("utf-8"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = make_console()
    console.print(Text("x", style="red"))
    assert ("\x1b[31mx\x1b[0m\n", False) == (written(console.file), can_redraw(console))


@pytest.mark.parametrize(("term", "expected"), [("xterm", True), ("dumb", False), ("", True)])
def test_dumb_terminal_cannot_redraw(monkeypatch, term, expected):
    """TERM=dumb is respected."""
    monkeypatch.setenv("TERM", term)
    assert expected == can_redraw(Console(file=FakeTerminal()))


def test_closed_stream_cannot_redraw():
    """A stream closed under us is no terminal."""
    file = io.StringIO()
    console = Console(file=file)
    file.close()
    assert can_redraw(console) is False
