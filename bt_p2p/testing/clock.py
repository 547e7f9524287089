"""Time that moves only when a test says so."""

from __future__ import annotations

import threading

START_S = 1_800_000_000.0
"""Where wall clocks of tests start; an arbitrary moment with a whole number of rounds."""


class ManualClock:
    """A `bt_p2p.clock.Clock` that stands still; safe to move from any thread."""

    def __init__(self, now_s: float = START_S) -> None:
        """Start at a moment."""
        self._lock = threading.Lock()
        self._now_s = now_s
        self._monotonic_s = 0.0

    def now_s(self) -> float:
        """Wall-clock seconds since the epoch."""
        with self._lock:
            return self._now_s

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        with self._lock:
            return self._monotonic_s

    def advance(self, duration_s: float) -> None:
        """Let time pass on both clocks.

        Raises:
            ValueError: time would go back.
        """
        if duration_s < 0:
            raise ValueError(f"time cannot pass backwards ({duration_s} s); use set_now_s")
        with self._lock:
            self._now_s += duration_s
            self._monotonic_s += duration_s

    def set_now_s(self, now_s: float) -> None:
        """Correct the wall clock, forwards or back, as time servers do."""
        with self._lock:
            self._now_s = now_s
