"""What the machine does besides this node: the load of other programs, and where its power is from."""

from __future__ import annotations

import contextlib
import os

import psutil


def is_on_battery() -> bool:
    """Whether there is a battery, and it is what the machine runs on."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False


def tree_memory_bytes() -> int:
    """Memory of this process and all below it; what they share is counted once."""
    total = 0
    for process in _tree():
        with contextlib.suppress(psutil.Error):
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.uss)
    return total


class LoadOfOthers:
    """The share of the machine's CPU that other programs have used between two looks."""

    def __init__(self) -> None:
        """The first look has nothing to compare with."""
        self._before: tuple[float, float, float] | None = None

    def look(self) -> float | None:
        """From 0 to 1; None for the first look, and for looks in too quick succession."""
        times = psutil.cpu_times()
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        # the system counts the time of guests as time of users, too
        busy_s = (
            sum(times) - idle_s - sum(getattr(times, f"guest{end}", 0.0) for end in ("", "_nice"))
        )
        own_s = _own_cpu_s()
        before, self._before = self._before, (busy_s, idle_s, own_s)
        if before is None:
            return None
        busy_s, idle_s, own_s = (now - then for now, then in zip(self._before, before, strict=True))
        total_s = busy_s + idle_s
        if total_s <= 0:
            self._before = before
            return None
        # a child that has ended takes its seconds along, so the difference may be negative
        return min(1.0, max(0.0, busy_s - max(0.0, own_s)) / total_s)


class IdleWatch:
    """Idle means: for some time, others have needed little of the CPU. Busy is busy at once."""

    def __init__(self, *, max_load: float, after_s: float) -> None:
        """Not idle yet.

        Args:
            max_load: share of the CPU that others may use.
            after_s: for how long, before it counts.
        """
        self._max_load = max_load
        self._after_s = after_s
        self._quiet_since_s: float | None = None

    def see(self, load: float | None, *, now_s: float) -> bool:
        """Take note of the load of others; returns whether the machine is idle."""
        if load is not None and load > self._max_load:
            self._quiet_since_s = None
        elif load is not None and self._quiet_since_s is None:
            self._quiet_since_s = now_s
        return self._quiet_since_s is not None and now_s - self._quiet_since_s >= self._after_s


def _tree() -> list[psutil.Process]:
    own = psutil.Process(os.getpid())
    with contextlib.suppress(psutil.Error):
        return [own, *own.children(recursive=True)]
    return [own]


def _own_cpu_s() -> float:
    total = 0.0
    for process in _tree():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total
