"""Time. Nobody else in the library reads a clock or sleeps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the library needs of time."""

    def now_s(self) -> float:
        """Wall-clock seconds since the epoch, as the swarm agrees on them."""

    def monotonic_s(self) -> float:
        """Seconds that never go back, for durations and deadlines."""


class SystemClock:
    """The machine's own clocks."""

    def now_s(self) -> float:
        """Wall-clock seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
