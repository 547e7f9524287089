"""The dashboard: polls in a thread of its own and draws what it knows, until it is stopped."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live

from bt_p2p.clock import Clock, SystemClock
from bt_p2p.errors import BtError
from bt_p2p.protocol.overview import SwarmOverview
from node.snapshot import NodeSnapshot
from node.tui.canvas import Canvas
from node.tui.format import format_duration
from node.tui.panels import dashboard
from node.tui.terminal import is_ascii
from node.tui.words import stall_words

Poll = Callable[[], tuple[SwarmOverview | None, NodeSnapshot | None]]
"""Asks the swarm and looks at this machine; may take seconds, may raise."""

_LOOK_S = 0.25
"""Changes of the data or of the window's size are looked for this often: at most 4 drawings/s."""
_TICK_S = 1.0
"""Ages are drawn anew this often."""
_PATIENCE_S = 10.0
"""A poll that takes longer counts as no answer."""
_CLOSE_S = 0.5
"""A poll under way at the end is waited for this long; its thread dies with the process."""


def run_dashboard(
    poll: Poll,
    *,
    console: Console,
    stop: threading.Event,
    refresh_s: float = 1.0,
    initial_peers: Sequence[str] = (),
    notes: Callable[[], Sequence[str]] = tuple,
    clock: Clock | None = None,
) -> None:
    """Show the swarm on the whole screen until `stop` is set or the user presses Ctrl-C.

    Blocks. The terminal is as before on every way out, exceptions of the drawing included. SIGTERM
    ends a process without any way out: its handler should set `stop`.

    Args:
        poll: called from another thread; what it raises is shown, not raised.
        console: a terminal that can be redrawn (`terminal.can_redraw`).
        stop: ends the dashboard within a quarter of a second.
        refresh_s: pause between two polls.
        initial_peers: addresses for the commands shown.
        notes: the caller's own lines, shown with the warnings.
        clock: of the system if None.
    """
    clock = clock or SystemClock()
    feed = _Feed(poll, clock=clock, refresh_s=refresh_s)
    live = Live(console=console, screen=True, auto_refresh=False)
    try:
        feed.start()
        live.start()
        _draw_until(stop, live, feed, initial_peers, notes, clock)
    except KeyboardInterrupt:
        pass
    finally:
        live.stop()
        feed.close()


def _draw_until(
    stop: threading.Event,
    live: Live,
    feed: _Feed,
    initial_peers: Sequence[str],
    notes: Callable[[], Sequence[str]],
    clock: Clock,
) -> None:
    console = live.console
    ascii_only = is_ascii(console.file)
    drawn: object = None
    drawn_at_s = -math.inf
    while not stop.is_set():
        size = console.size
        version = feed.version
        now_s = clock.monotonic_s()
        if drawn != (size, version) or now_s - drawn_at_s >= _TICK_S:
            overview, snapshot, problems = feed.latest()
            canvas = Canvas(width=size.width, height=size.height, ascii_only=ascii_only)
            screen = dashboard(
                overview,
                snapshot,
                now_s=clock.now_s(),
                canvas=canvas,
                notes=[*problems, *notes()],
                initial_peers=initial_peers,
            )
            live.update(screen, refresh=True)
            drawn, drawn_at_s = (size, version), now_s
        stop.wait(_LOOK_S)


class _Feed:
    """The newest answers to a poll, and how old they are."""

    def __init__(self, poll: Poll, *, clock: Clock, refresh_s: float) -> None:
        self._poll = poll
        self._clock = clock
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-poll", daemon=True)
        self._overview: SwarmOverview | None = None
        self._snapshot: NodeSnapshot | None = None
        self._stall = ""
        self._error = ""
        self._answered_at_s = clock.monotonic_s()
        self.version = 0
        """Counts the polls that ended."""

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling; waits a moment for a poll under way."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    def latest(self) -> tuple[SwarmOverview | None, NodeSnapshot | None, list[str]]:
        """The last good answers, and notes on what is wrong with them."""
        with self._lock:
            notes = [note for note in (self._silence_words(), self._stall) if note]
            return self._overview, self._snapshot, notes

    def _silence_words(self) -> str:
        silence_s = self._clock.monotonic_s() - self._answered_at_s
        if self._error or silence_s > _PATIENCE_S:
            error = f": {self._error}" if self._error else ""
            return f"no answer from the swarm for {format_duration(silence_s)}{error}"
        if self._overview is None:
            return "asking the swarm"
        return ""

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                overview, snapshot = self._poll()
            except Exception as exc:  # noqa: BLE001  # the end of a thread; the screen shows it
                with self._lock:
                    self._error = _error_words(exc)
                    self.version += 1
            else:
                self._keep(overview, snapshot)
            self._done.wait(self._refresh_s)

    def _keep(self, overview: SwarmOverview | None, snapshot: NodeSnapshot | None) -> None:
        """Take over an answer; without an overview the last one stays, and grows old."""
        with self._lock:
            self._snapshot = snapshot
            self._stall = stall_words(snapshot, now_s=self._clock.now_s()) if snapshot else ""
            self._error = ""
            if overview is not None:
                self._overview = overview
                self._answered_at_s = self._clock.monotonic_s()
            self.version += 1


def _error_words(error: Exception) -> str:
    """Our own errors speak for themselves; others need their class."""
    if isinstance(error, BtError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
