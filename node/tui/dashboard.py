"""The dashboard: polls in a thread of its own and draws what it knows, until it is stopped."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleDimensions

from bt_p2p.clock import Clock, SystemClock
from node.log_setup import held_back
from node.tui.canvas import Canvas
from node.tui.feed import Feed, Look, Poll
from node.tui.keys import Key, Keys, keyboard
from node.tui.panels import dashboard, num_peers_shown
from node.tui.peer_table import clamp_first
from node.tui.screen import Screen
from node.tui.terminal import is_ascii

logger = logging.getLogger(__name__)

_LOOK_S = 0.25
"""Changes of the data or of the window's size are looked for this often: at most 4 drawings/s."""
_TICK_S = 1.0
"""Ages are drawn anew this often."""
_REPAINT_S = 10.0
"""Whatever another program wrote on the screen is painted over this often."""
_PAGE_ROWS = 10
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_dashboard(
    poll: Poll,
    *,
    console: Console,
    stop: threading.Event,
    refresh_s: float = 1.0,
    initial_peers: Sequence[str] = (),
    notes: Callable[[], Sequence[str]] = tuple,
    clock: Clock | None = None,
    look: Look | None = None,
) -> int:
    """Show the swarm on the whole screen until `stop` is set, a signal comes or q is pressed.

    Blocks. The terminal is as before on every way out: signals (INT, TERM, HUP and QUIT are handled
    while it is on the screen), exceptions of the drawing, a terminal that is gone. Ctrl-Z gives it
    back until the job is continued.

    Args:
        poll: called from another thread; what it raises is shown, not raised.
        console: a terminal that can be redrawn (`terminal.can_redraw`).
        stop: ends the dashboard within a quarter of a second.
        refresh_s: pause between two questions to the swarm.
        initial_peers: addresses for the commands shown.
        notes: the caller's own lines, shown with the warnings.
        clock: of the system if None.
        look: finds the node instead of `poll` for every drawing, so that it is seen while the swarm
            does not answer.

    Returns:
        The signal that ended it; 0 if none did.
    """
    clock = clock or SystemClock()
    feed = Feed(poll, clock=clock, refresh_s=refresh_s, look=look)
    view = _View(console, feed, initial_peers=initial_peers, notes=notes, clock=clock)
    with held_back(), _Signals(stop) as signals:
        try:
            feed.start()
            view.run(stop, signals)
        finally:
            feed.close()
    return signals.number


class _Signals:
    """Signals that end the dashboard in order, and Ctrl-Z; only the main thread gets any."""

    def __init__(self, stop: threading.Event) -> None:
        self.number = 0
        """The first signal that asked for the end."""
        self.is_suspend_asked = False
        self._stop = stop
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                self._before[number] = signal.signal(number, self._end)
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        self._stop.set()

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        self.is_suspend_asked = True


class _View:
    """What is on the screen, and how far it is scrolled."""

    def __init__(
        self,
        console: Console,
        feed: Feed,
        *,
        initial_peers: Sequence[str],
        notes: Callable[[], Sequence[str]],
        clock: Clock,
    ) -> None:
        self._console = console
        self._feed = feed
        self._initial_peers = initial_peers
        self._notes = notes
        self._clock = clock
        self._screen = Screen(console)
        self._keys = Keys(keyboard())
        self._ascii_only = is_ascii(console.file)
        self._first_peer = 0
        self._drawn: object = None
        self._drawn_at_s = -math.inf
        self._repainted_at_s = -math.inf

    def run(self, stop: threading.Event, signals: _Signals) -> None:
        """Draw until the event is set, q is pressed or the terminal is gone."""
        try:
            with self._keys, self._screen:
                while not stop.is_set():
                    self._look()
                    if self._obey(self._keys.wait(_LOOK_S, stop)):
                        return
                    if signals.is_suspend_asked:
                        signals.is_suspend_asked = False
                        self._suspend()
        except OSError as exc:
            logger.debug("the terminal is gone: %s", exc)

    def _look(self) -> None:
        """Draw, if anything may look different now."""
        size = self._console.size
        now_s = self._clock.monotonic_s()
        state = (size, self._feed.version, self._first_peer)
        if self._drawn == state and now_s - self._drawn_at_s < _TICK_S:
            return
        resized = not isinstance(self._drawn, tuple) or self._drawn[0] != size
        if resized or now_s - self._repainted_at_s >= _REPAINT_S:
            self._screen.forget()
            self._repainted_at_s = now_s
        overview, snapshot, problems, trends = self._feed.latest()
        screen = dashboard(
            overview,
            snapshot,
            now_s=self._clock.now_s(),
            canvas=self._canvas(size),
            notes=[*problems, *self._notes()],
            initial_peers=self._initial_peers,
            trends=trends,
            first_peer=self._first_peer,
        )
        self._screen.paint(screen, size)
        self._drawn, self._drawn_at_s = state, now_s

    def _obey(self, keys: Sequence[Key]) -> bool:
        """Do what the keys say; whether that is to end."""
        for key in keys:
            if key == "quit":
                return True
            if key == "redraw":
                self._screen.forget()
                self._drawn = None
            else:
                self._scroll(key)
        return False

    def _scroll(self, key: Key) -> None:
        overview, snapshot, problems, _ = self._feed.latest()
        num_peers = overview.num_peers if overview is not None else 0
        num_shown = num_peers_shown(
            overview,
            snapshot,
            now_s=self._clock.now_s(),
            canvas=self._canvas(self._console.size),
            notes=[*problems, *self._notes()],
            initial_peers=self._initial_peers,
        )
        first = clamp_first(self._first_peer, num_peers, num_shown)
        first += {"up": -1, "down": 1, "page up": -_PAGE_ROWS, "page down": _PAGE_ROWS}.get(key, 0)
        first = {"first": 0, "last": num_peers}.get(key, first)
        self._first_peer = clamp_first(first, num_peers, num_shown)

    def _suspend(self) -> None:
        """Give the terminal back, stop as Ctrl-Z does, and take it again once continued."""
        self._screen.leave()
        self._keys.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._keys.enter()
        self._screen.enter()
        self._drawn = None

    def _canvas(self, size: ConsoleDimensions) -> Canvas:
        return Canvas(width=size.width, height=size.height, ascii_only=self._ascii_only)
