"""Asks the parts of a node whether they still answer, and says once when one does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bt_p2p.protocol.limits import HEALTH_PERIOD_S, STOP_TIMEOUT_S
from node.repeated_task import RepeatedTask

Ask = Callable[[], str]
"""Asks one part; says what is wrong with it, or nothing."""


class HealthWatch:
    """A thread that asks every `HEALTH_PERIOD_S`."""

    def __init__(self, asks: Sequence[Ask], on_broken: Callable[[str], None]) -> None:
        """Not running before `start`.

        Args:
            asks: one for each part.
            on_broken: told of the first part that is broken, from the thread, once.
        """
        self._asks = asks
        self._on_broken = on_broken
        self._problem = ""
        self._is_told = False
        self._task = RepeatedTask("health", self.look, period_s=HEALTH_PERIOD_S)

    def start(self) -> None:
        """Begin to ask."""
        self._task.start()

    def stop(self) -> None:
        """Ask no more; idempotent. Parts that end from now on are not told of."""
        self._is_told = True
        self._task.stop(timeout_s=STOP_TIMEOUT_S / 8)

    def look(self) -> None:
        """Ask all parts. One is broken when two looks in a row find a problem: one may be a stall."""
        if self._is_told:
            return
        problem = next((found for ask in self._asks if (found := ask())), "")
        if problem and self._problem and not self._is_told:
            self._is_told = True
            self._on_broken(problem)
        self._problem = problem
