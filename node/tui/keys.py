"""Keys: what is typed, without waiting for Enter, and without showing it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import threading
import tty
from types import TracebackType
from typing import Any, Literal, Self

Key = Literal["up", "down", "page up", "page down", "first", "last", "redraw", "quit"]

_KEYS: dict[bytes, Key] = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"k": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"j": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b" ": "page down",
    b"\x1b[H": "first",
    b"\x1bOH": "first",
    b"\x1b[1~": "first",
    b"g": "first",
    b"\x1b[F": "last",
    b"\x1bOF": "last",
    b"\x1b[4~": "last",
    b"G": "last",
    b"\x0c": "redraw",
    b"q": "quit",
    b"Q": "quit",
    b"\x04": "quit",  # Ctrl-D
}
_TYPED = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b.?|.", re.DOTALL)
"""One key: an escape sequence, or a byte."""
_READ_BYTES = 1024


def parse_keys(typed: bytes) -> list[Key]:
    """The keys that mean something, in order; everything else is skipped."""
    return [_KEYS[match] for match in _TYPED.findall(typed) if match in _KEYS]


class Keys:
    """The keyboard of a terminal, from `enter` to `leave`; both may be repeated.

    Where the descriptor is no terminal there are no keys, only waiting.
    """

    def __init__(self, descriptor: int | None) -> None:
        """Nothing is changed yet.

        Args:
            descriptor: of standard input; None if there is none.
        """
        self._descriptor = descriptor
        self._before: list[Any] | None = None

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
        """Read keys as they are typed; Ctrl-C and Ctrl-Z go on sending their signals."""
        if self._descriptor is None or not os.isatty(self._descriptor):
            return
        with contextlib.suppress(termios.error):  # hung up
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)

    def leave(self) -> None:
        """Let the terminal treat keys as before."""
        if self._before is None or self._descriptor is None:
            return
        with contextlib.suppress(termios.error):  # hung up
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)
        self._before = None

    def wait(self, timeout_s: float, stop: threading.Event) -> list[Key]:
        """The keys typed until now; waits for the first one, or for the event where none can come.

        Args:
            timeout_s: longest time to wait.
            stop: ends a wait at once where there is no keyboard.
        """
        if self._before is None or self._descriptor is None:
            stop.wait(timeout_s)
            return []
        ready, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not ready:
            return []
        try:
            typed = os.read(self._descriptor, _READ_BYTES)
        except OSError:
            typed = b""
        if not typed:  # hung up: it would be ready for ever
            self._before = None
        return parse_keys(typed)


def keyboard() -> int | None:
    """The descriptor of standard input, if it has one."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None
