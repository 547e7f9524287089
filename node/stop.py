"""How a node is asked to end: INT, TERM and HUP end it in order, a second signal at once.

It ends in the same order to be rebuilt when a part of it is broken.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from node import exit_codes

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Set by a signal or a broken part; looked at between steps, and waited on by threads.

    Attributes:
        event: set once the node should end.
        signal_number: the signal that asked; 0 if none did.
        rebuild_reason: what is broken, in plain words; empty if nothing is.
        is_starting: there is nothing to finish yet, so a signal raises SystemExit in the main
            thread, wherever it is: imports and the first dial take longer than one wants to wait.
    """

    def __init__(self) -> None:
        """Not requested yet; `listen` connects it to the signals."""
        self.event = threading.Event()
        self.is_starting = False
        self.signal_number = 0
        self.rebuild_reason = ""
        self._callbacks: list[Callable[[], None]] = []
        threading.Thread(target=self._wait, name="stop", daemon=True).start()

    def listen(self) -> None:
        """Handle the signals from now on; call in the main thread."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call this once, from a thread of its own, when the stop is requested."""
        self._callbacks.append(callback)

    def ask_to_rebuild(self, reason: str) -> None:
        """End the node in order, to be rebuilt; from any thread. The first reason is kept."""
        self.rebuild_reason = self.rebuild_reason or reason
        self.event.set()

    @property
    def is_requested(self) -> bool:
        """Whether the node should end."""
        return self.event.is_set()

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return 128 + self.signal_number if self.signal_number else exit_codes.OK

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal_number:
            os._exit(128 + number)  # children notice and end by themselves
        self.signal_number = number
        self.event.set()
        if self.is_starting:
            raise SystemExit(self.exit_code)

    def _wait(self) -> None:
        self.event.wait()
        for callback in self._callbacks:
            callback()
