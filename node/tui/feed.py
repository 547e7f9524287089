"""The feed: polls the swarm in a thread of its own and keeps the newest answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from bt_p2p.clock import Clock
from bt_p2p.errors import BtError
from bt_p2p.protocol.overview import SwarmOverview
from node.snapshot import NodeSnapshot
from node.tui.format import format_duration
from node.tui.trends import Trends
from node.tui.words import ended_words

Poll = Callable[[], tuple[SwarmOverview | None, NodeSnapshot | None]]
"""Asks the swarm, and knows the node to show; may take seconds, may raise."""
Look = Callable[[], NodeSnapshot | None]
"""Looks at the node on this machine, quickly; None if none runs."""

_PATIENCE_S = 10.0
"""A poll that takes longer counts as no answer."""
_CLOSE_S = 0.5
"""A poll under way at the end is waited for this long; its thread dies with the process."""


class News(NamedTuple):
    """What a feed knows."""

    overview: SwarmOverview | None
    snapshot: NodeSnapshot | None
    problems: list[str]
    trends: dict[int, list[float]]


class Feed:
    """The newest answers of the swarm and of this machine, and how old they are.

    The swarm is asked in a thread of its own: while it does not answer, the node is seen all the
    same.
    """

    def __init__(
        self, poll: Poll, *, clock: Clock, refresh_s: float, look: Look | None = None
    ) -> None:
        """Ask nothing yet.

        Args:
            poll: called in the feed's thread; what it raises becomes a problem.
            clock: of the machine.
            refresh_s: pause between two questions.
            look: finds the node instead of `poll`, whenever somebody wants to know.
        """
        self._poll = poll
        self._look = look or (lambda: self._polled_node)
        self._clock = clock
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-poll", daemon=True)
        self._overview: SwarmOverview | None = None
        self._polled_node: NodeSnapshot | None = None
        self._last_node: NodeSnapshot | None = None
        self._trends = Trends()
        self._error = ""
        self._answered_at_s = clock.monotonic_s()
        self.version = 0
        """Counts the questions that were answered, or not."""

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Ask no longer; waits a moment for a question under way."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    def latest(self) -> News:
        """The last good answers, notes on what is wrong with them, and the losses seen."""
        snapshot = self._look()
        self._last_node = snapshot or self._last_node
        gone = self._last_node if snapshot is None else None
        node_words = ended_words(gone) if gone is not None else ""
        with self._lock:
            notes = [note for note in (node_words, self._silence_words()) if note]
            return News(self._overview, snapshot, notes, self._trends.losses())

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
                overview, node = self._poll()
            except Exception as exc:  # noqa: BLE001  # the end of a thread; the screen shows it
                with self._lock:
                    self._error = _error_words(exc)
                    self.version += 1
            else:
                self._keep(overview, node)
            self._done.wait(self._refresh_s)

    def _keep(self, overview: SwarmOverview | None, node: NodeSnapshot | None) -> None:
        """Take over an answer; without an overview the last one stays, and grows old."""
        with self._lock:
            self._error = ""
            self._polled_node = node
            if overview is not None:
                self._overview = overview
                self._trends.see(overview)
                self._answered_at_s = self._clock.monotonic_s()
            self.version += 1


def _error_words(error: Exception) -> str:
    """Our own errors speak for themselves; others need their class."""
    if isinstance(error, BtError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
