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

    def until(ask, awaited, *, look=lambda: None, stop=None):
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
            run_dashboard(
                lambda: (ask(), None),
                console=console,
                stop=stop,
                refresh_s=0.01,
                clock=clock,
                look=look,
            )
        finally:
            guard.cancel()
        return file.getvalue()

    return until


def is_restored(text):
    """Whether the other screen was left and the cursor is shown at the end."""
    return text.rfind(LEAVE) > text.rfind(ENTER) >= 0 and text.rfind(SHOW_CURSOR) > text.rfind(
        HIDE_CURSOR
    )


def test_answer_is_drawn(run, healthy, node):
    """What a poll returns is on the screen, and the terminal is given back."""
    text = run(lambda: healthy, "4 peers", look=node)
    assert "this node" in text
    assert "4 peers, 3/3 blocks training" in text
    assert is_restored(text)


def test_first_screen_does_not_wait_for_the_poll(run, healthy):
    """The screen is drawn while the first poll still runs."""
    stop = threading.Event()

    def ask():
        assert stop.wait(DEADLINE_S)
        return healthy

    assert "asking the swarm" in run(ask, "asking the swarm", stop=stop)


def test_failed_poll_is_told_with_its_age(run, healthy, clock):
    """The last answer stays, with how old it is and why."""
    answers = iter([healthy])

    def ask():
        for overview in answers:
            return overview
        clock.passed_s = 12.0
        raise BootstrapError("none of 3 peers answered")

    note = "no answer from the swarm for 12 s: none of 3 peers answered"
    text = run(ask, note)
    assert note in text
    assert "4 peers, 3/3 blocks training" in text


def test_foreign_error_is_named_by_its_class(run):
    """An error that is not ours shows its class, even without words."""

    def ask():
        raise KeyError

    assert "no answer from the swarm for 0 s: KeyError" in run(ask, "KeyError")


def test_missing_answer_keeps_the_last_one(run, healthy, node, clock):
    """A swarm that does not answer keeps its old overview, and it says how old that is."""
    answers = iter([healthy])

    def ask():
        for answer in answers:
            return answer
        clock.passed_s = 20.0
        return None

    text = run(ask, "no answer from the swarm for 20 s", look=node)
    assert "3/3 blocks training" in text
    assert "this node" in text


def test_node_is_seen_while_the_swarm_does_not_answer(run, clock, node):
    """What the node says of itself does not wait for the swarm."""
    stop = threading.Event()
    states = iter(["joining", "syncing"])

    def ask():
        assert stop.wait(DEADLINE_S)

    def look():
        clock.passed_s += 1.0
        return node(state=next(states, "averaging"))

    text = run(ask, "averaging", look=look, stop=stop)
    assert "syncing" in text


def test_end_of_the_node_is_told(run, healthy, node):
    """A node that was there and is not any more has ended; where to look for the reason."""
    seen = iter([node()])
    text = run(lambda: healthy, "has ended", look=lambda: next(seen, None))
    assert "(process 1234) has ended; the reason is at the end" in text


def test_silent_node_is_told(run, healthy, node, now_s):
    """A node that lives but stopped reporting is a warning."""
    text = run(lambda: healthy, "has reported nothing", look=lambda: node(updated_at_s=now_s - 60))
    assert "has reported nothing for 60 s" in text


def test_error_of_the_drawing_restores_the_terminal(clock, healthy, monkeypatch):
    """An error of our own reaches the caller, on a terminal that works."""

    def fail(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(dashboard_module, "dashboard", fail)
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    with pytest.raises(ZeroDivisionError):
        run_dashboard(
            lambda: (healthy, None),
            console=console,
            stop=threading.Event(),
            clock=clock,
        )
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
    run(lambda: healthy, "3/3 blocks training")
    deadline_s = time.monotonic() + DEADLINE_S
    while any(thread.name == "status-poll" for thread in threading.enumerate()):
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.005)
