"""Waits on conditions, with deadlines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, deadline_s: float, poll_s: float = 0.05) -> T:
    """The first true value of a condition; AssertionError with the last one after the deadline."""
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end_s, f"not true within {deadline_s} s, last value {value!r}"
        time.sleep(poll_s)
    return value


def wait_for_time(moment_s: float, *, longest_s: float = 30.0) -> None:
    """Until the wall clock, on which rounds are scheduled, has reached a moment."""
    wait_until(lambda: time.time() >= moment_s, deadline_s=longest_s, poll_s=0.005)
