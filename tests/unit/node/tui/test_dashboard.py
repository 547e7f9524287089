"""The loop behind `bt-node status`."""

from __future__ import annotations

import io
import threading
import time

import pytest
from rich.console import Console

from bt_p2p.errors import BootstrapError
from node.tui import dashboard as dashboard_module
from node.tui.dashboard import run_dashboard

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HOME = "\x1b[H"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
DEADLINE_S = 5.0


class Screen(io.StringIO):
    """A terminal that sets an event once some text was written to it."""

    def __init__(self, awaited: str, seen: threading.Event) -> None:
        """Wait for one text."""
        super().__init__()
        self.awaited = awaited
        self.seen = seen

    def write(self, text: str) -> int:
        """Keep the text and look for the awaited one."""
        if self.awaited in text:
            self.seen.set()
        return super().write(text)


@pytest.fixture
def quick(monkeypatch):
    """Look for news a hundred times a second."""
    monkeypatch.setattr(dashboard_module, "_LOOK_S", 0.01)


@pytest.fixture
def run(quick, clock):
    """Runs the dashboard until a text shows up, then returns all that was written."""

    def until(poll, awaited, *, stop=None):
        stop = stop or threading.Event()
        guard = threading.Timer(DEADLINE_S, stop.set)
        guard.start()
        file = Screen(awaited, stop)
        console = Console(
            file=file,
            force_terminal=True,
            width=80,
            height=24,
            legacy_windows=False,
            _environ={"TERM": "xterm"},
        )
        try:
            run_dashboard(poll, console=console, stop=stop, refresh_s=0.01, clock=clock)
        finally:
            guard.cancel()
        return file.getvalue()

    return until


def last_frame(text):
    """The newest drawing; each starts in the upper left corner."""
    return text.rpartition(HOME)[2]


def is_restored(text):
    """Whether the other screen was left and the cursor is shown at the end."""
    return text.rfind(LEAVE) > text.rfind(ENTER) >= 0 and text.rfind(SHOW_CURSOR) > text.rfind(
        HIDE_CURSOR
    )


def test_answer_is_drawn(run, healthy, node):
    """What a poll returns is on the screen, and the terminal is given back."""
    text = run(lambda: (healthy, node()), "this node")
    assert "4 peers, 3/3 blocks training" in text
    assert is_restored(text)


def test_first_screen_does_not_wait_for_the_poll(run, healthy):
    """The screen is drawn while the first poll still runs."""
    stop = threading.Event()

    def poll():
        assert stop.wait(DEADLINE_S)
        return healthy, None

    assert "asking the swarm" in run(poll, "asking the swarm", stop=stop)


def test_failed_poll_is_told_with_its_age(run, healthy, clock):
    """The last answer stays, with how old it is and why."""
    polls = iter([healthy])

    def poll():
        for overview in polls:
            return overview, None
        clock.passed_s = 12.0
        raise BootstrapError("none of 3 peers answered")

    note = "no answer from the swarm for 12 s: none of 3 peers answered"
    frame = last_frame(run(poll, note))
    assert note in frame
    assert "4 peers, 3/3 blocks training" in frame


def test_foreign_error_is_named_by_its_class(run):
    """An error that is not ours shows its class, even without words."""

    def poll():
        raise KeyError

    assert "no answer from the swarm for 0 s: KeyError" in run(poll, "KeyError")


def test_missing_answer_keeps_the_last_one(run, healthy, node, clock):
    """A poll that finds only this node keeps the old overview and says how old it is."""
    polls = iter([(healthy, None)])

    def poll():
        for answer in polls:
            return answer
        clock.passed_s = 20.0
        return None, node()

    frame = last_frame(run(poll, "no answer from the swarm for 20 s"))
    assert "3/3 blocks training" in frame
    assert "this node" in frame


def test_silent_node_is_told(run, healthy, node, now_s):
    """A node that lives but stopped reporting is a warning."""
    text = run(lambda: (healthy, node(updated_at_s=now_s - 60)), "has reported nothing")
    assert "has reported nothing for 60 s" in text


def test_error_of_the_drawing_restores_the_terminal(clock, healthy, monkeypatch):
    """An error of our own reaches the caller, on a terminal that works."""

    def fail(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(dashboard_module, "dashboard", fail)
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    with pytest.raises(ZeroDivisionError):
        run_dashboard(lambda: (healthy, None), console=console, stop=threading.Event(), clock=clock)
    assert is_restored(console.file.getvalue())


def test_set_stop_draws_nothing(run, clock, healthy):
    """A dashboard that is stopped before it starts ends at once."""
    stop = threading.Event()
    stop.set()
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    run_dashboard(lambda: (healthy, None), console=console, stop=stop, clock=clock)
    assert is_restored(console.file.getvalue())


def test_drawings_are_at_most_four_a_second():
    """The pause between two looks bounds the drawings."""
    assert dashboard_module._LOOK_S >= 0.25


def test_poll_thread_ends_with_the_dashboard(run, healthy):
    """No thread polls on after the dashboard."""
    run(lambda: (healthy, None), "3/3 blocks training")
    deadline_s = time.monotonic() + DEADLINE_S
    while any(thread.name == "status-poll" for thread in threading.enumerate()):
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.005)
