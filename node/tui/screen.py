"""The screen: a whole terminal, painted line by line and given back as it was.

Only lines that changed are written, in one piece, over what stood there: nothing is ever erased
first, so nothing flickers.
"""

from __future__ import annotations

import contextlib
import logging
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.screen import Screen as FullScreen

logger = logging.getLogger(__name__)

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""Other screen, no cursor, no line wrap: a line too long for a window that shrank must not scroll."""
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that know synchronized output show what is between these at once; others ignore it."""


class Screen:
    """The terminal of a console, from `enter` to `leave`; both may be repeated."""

    def __init__(self, console: Console) -> None:
        """Nothing is written yet."""
        self._console = console
        self._lines: list[str] = []
        self._is_entered = False

    def __enter__(self) -> Self:
        """See `enter`."""
        self.enter()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See `leave`."""
        self.leave()

    def enter(self) -> None:
        """Keep what the terminal shows, and take it over."""
        self._is_entered = True
        self._lines = []
        self._write(_ENTER)

    def leave(self) -> None:
        """Show again what the terminal showed before, with its cursor; without effect if left."""
        if not self._is_entered:
            return
        self._is_entered = False
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            self._write(_LEAVE)

    def forget(self) -> None:
        """Paint every line next time: something else may have written over them."""
        self._lines = []

    def paint(self, renderable: RenderableType, size: ConsoleDimensions) -> None:
        """Show something on the whole screen; what does not fit is cut.

        Raises:
            OSError: the terminal is gone.
        """
        with self._console.capture() as capture:
            self._console.print(
                FullScreen(renderable), width=size.width, height=size.height, end=""
            )
        lines = capture.get().split("\n")
        if len(lines) != len(self._lines):
            self._lines = [""] * len(lines)
        changed = [
            f"\x1b[{number};1H{line}"
            for number, (line, before) in enumerate(zip(lines, self._lines, strict=True), start=1)
            if line != before
        ]
        self._lines = lines
        if changed:
            self._write("".join([_BEGIN, *changed, _END]))

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
