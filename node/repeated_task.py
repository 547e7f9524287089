"""A thread that does one thing again and again until the node ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bt_p2p.errors import SwarmError

logger = logging.getLogger(__name__)


class RepeatedTask:
    """Runs a function every period; a `SwarmError` of it is logged when it is news."""

    def __init__(self, name: str, action: Callable[[], None], *, period_s: float) -> None:
        """Not running before `start`.

        Args:
            name: of the thread.
            action: what to do; should come back within a few periods.
            period_s: pause between two runs.
        """
        self._name = name
        self._action = action
        self._period_s = period_s
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, with a first run at once."""
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        """End after the run that is under way, and wait for it; idempotent."""
        self._is_ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        problem = ""
        while not self._is_ending.is_set():
            try:
                self._action()
                problem = ""
            except SwarmError as exc:
                if not problem:
                    logger.warning("%s: %s", self._name, exc)
                problem = str(exc)
            self._is_ending.wait(self._period_s)
