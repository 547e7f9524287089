"""The terminal: which console to write to, and what it can show."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TextIO

from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    """The console of one standard stream.

    rich itself obeys NO_COLOR, FORCE_COLOR, TERM=dumb, COLUMNS and LINES. Beyond that, nothing
    printed is taken for markup or emoji codes, text for pipes is neither wrapped nor cut, and a
    character that the stream cannot encode comes out as "?" instead of UnicodeEncodeError.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")
    return Console(
        stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=not _is_tty(stream)
    )


def is_ascii(stream: object) -> bool:
    """Whether to write only ASCII to a stream: its encoding is not a Unicode one.

    Others may know the panels' lines, but not what strangers write. A stream without an encoding,
    such as StringIO, takes everything.
    """
    encoding = getattr(stream, "encoding", None)
    if not isinstance(encoding, str):
        return False
    try:
        return not codecs.lookup(encoding).name.startswith("utf")
    except LookupError:
        return True


def can_redraw(console: Console) -> bool:
    """Whether the console is a terminal on which lines can be drawn over.

    FORCE_COLOR asks for colours in a pipe, not for a dashboard in it, so it does not count.
    """
    return _is_tty(console.file) and os.environ.get("TERM", "").lower() not in {"dumb", "unknown"}


def _is_tty(stream: TextIO | io.IOBase | object) -> bool:
    isatty = getattr(stream, "isatty", None)
    try:
        return bool(isatty()) if callable(isatty) else False
    except ValueError:  # closed
        return False
