"""A program of its own for the tests of real terminals: the dashboard of a swarm that stands still.

Usage: shown_dashboard.py [fail]
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

import conftest

from node.tui.dashboard import run_dashboard
from node.tui.terminal import make_console


def notes() -> list[str]:
    """Breaks the drawing, if that is asked for."""
    if "fail" in sys.argv:
        raise ZeroDivisionError("as asked")
    return []


if __name__ == "__main__":
    overview = conftest.make_swarm(conftest.healthy_leases())
    number = run_dashboard(
        lambda: (overview, conftest.make_snapshot()),
        console=make_console(),
        stop=threading.Event(),
        notes=notes,
        clock=conftest.SetClock(),
    )
    with contextlib.suppress(OSError):  # nobody reads it any more
        sys.stdout.flush()
    os._exit(number)  # as `node.command_line.end_process` does
