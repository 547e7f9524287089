"""Progress: what `bt-node join` reports, on a terminal as a panel below a log, else as lines."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from bt_p2p.clock import Clock, SystemClock
from node.reasons.judge import reasons_of
from node.snapshot import NodeSnapshot
from node.tui.canvas import DIM, Canvas
from node.tui.format import format_bytes, format_loss, format_rate, plain
from node.tui.panels import node_panel, warning_lines
from node.tui.terminal import is_ascii
from node.tui.words import block_words, warning_words

_MIN_REDRAW_S = 0.25
_WATCH_S = 1.0
_CLOSE_S = 0.5
_MAX_ROWS = 6
logger = logging.getLogger(__name__)

_MAX_WARNING_LINES = 4
_WAY_OF_A_ROUND = {"training", "averaging"}
"""States that alternate in every round; only the first is worth a line."""


class JoinReporter:
    """Tells the user what a running node does; may be called from any thread.

    On a terminal (`live`) one panel stays at the bottom and lines scroll above it. Otherwise, or
    on a terminal that cannot be redrawn, there are only lines, each with its time.

    The panel, and with it the redirection of the standard streams, begins with the first snapshot.
    Fork before that: a child must not inherit it.
    """

    def __init__(
        self,
        console: Console,
        *,
        live: bool,
        ascii: bool = False,  # noqa: A002  # the word people use for it
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing is shown yet.

        Args:
            console: where to write.
            live: draw a panel, if the console can redraw.
            ascii: use ASCII only; implied where the console's encoding is not a Unicode one.
            clock: times of lines and pace of drawing; of the system if None.
        """
        self._console = console
        self._is_live = live and console.is_interactive
        self._ascii_only = ascii or is_ascii(console.file)
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._last: NodeSnapshot | None = None
        self._drawn_at_s = -math.inf
        self._done = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Nothing yet; see the class."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Draw the newest state once more and give the terminal back."""
        self._done.set()
        if self._watcher is not None:
            self._watcher.join(_CLOSE_S)
        with self._lock:
            if self._live is None:
                return
            try:
                if self._last is not None:
                    self._live.update(self._panel(self._last, self._clock.now_s()))
            finally:
                self._live.stop()
                self._live = None

    def watch(self, read: Callable[[], NodeSnapshot]) -> None:
        """Update once a second from now on, in a thread of its own, so that times do not stand.

        Args:
            read: gives the node at this moment, quickly.
        """
        self._watcher = threading.Thread(
            target=self._run, args=(read,), name="join-progress", daemon=True
        )
        self._watcher.start()

    def update(self, snapshot: NodeSnapshot, now_s: float) -> None:
        """Report what is new in a snapshot. Cheap: the panel is drawn at most four times a second.

        Args:
            snapshot: the node now.
            now_s: seconds since the epoch.
        """
        with self._lock:
            if self._done.is_set():
                return
            for text in event_lines(self._last, snapshot, with_states=not self._is_live):
                self._print(text, now_s)
            self._last = snapshot
            tick_s = self._clock.monotonic_s()
            if self._is_live and tick_s - self._drawn_at_s >= _MIN_REDRAW_S:
                self._drawn_at_s = tick_s
                self._draw(self._panel(snapshot, now_s))

    def line(self, text: str) -> None:
        """Print one line with its time, above the panel if there is one; it is logged as well."""
        logger.info("%s", text)
        with self._lock:
            try:
                self._print(text, self._clock.now_s())
            except OSError as exc:  # the terminal is gone; the node is told by a signal
                logger.debug("cannot print: %s", exc)

    def _run(self, read: Callable[[], NodeSnapshot]) -> None:
        while not self._done.wait(_WATCH_S):
            try:
                self.update(read(), self._clock.now_s())
            except OSError as exc:  # a full disk, or a terminal that is gone: there are signals
                logger.debug("cannot print: %s", exc)

    def _print(self, text: str, now_s: float) -> None:
        time = datetime.fromtimestamp(now_s, tz=UTC).astimezone()
        clean = plain(text, ascii_only=self._ascii_only)
        if self._is_live:
            self._console.print(Text.assemble((f"{time:%H:%M:%S} ", DIM), clean))
        else:
            self._console.print(Text(f"{time:%Y-%m-%d %H:%M:%S} {clean}"), soft_wrap=True)

    def _draw(self, panel: RenderableType) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                vertical_overflow="crop",
            )
            self._live.start()
        self._live.update(panel, refresh=True)

    def _panel(self, snapshot: NodeSnapshot, now_s: float) -> RenderableType:
        width, height = self._console.size
        canvas = Canvas(width=width, height=height, ascii_only=self._ascii_only)
        panel = node_panel(snapshot, now_s=now_s, canvas=canvas, max_rows=_MAX_ROWS)
        warnings: list[Text] = []
        if height > 2 * _MAX_ROWS:
            warnings = warning_lines(warning_words(snapshot), canvas, max_lines=_MAX_WARNING_LINES)
        return Group(*warnings, panel)


def event_lines(
    before: NodeSnapshot | None, after: NodeSnapshot, *, with_states: bool = True
) -> list[str]:
    """What happened between two snapshots, a line for each event.

    Args:
        before: None at the start.
        after: the later one.
        with_states: say as well what the node turns to, such as syncing.
    """
    lines: list[str] = []
    if with_states and _is_new_state(before, after):
        lines.append(f"{after.state}: {block_words(after)}")
    if _num_rounds(after) > (_num_rounds(before) if before is not None else 0):
        lines.append(
            f"round {after.round_index}: {after.last_outcome or 'no outcome'}; "
            f"loss {format_loss(after.loss)} nats/byte; {format_rate(after.bytes_per_s)}; "
            f"{format_bytes(after.bytes_sent)} sent"
        )
    known = {reason.code for reason in reasons_of(before)} if before is not None else set()
    lines += [
        f"warning: {reason.line}"
        for reason in reasons_of(after)
        if reason.is_warning and reason.code not in known
    ]
    return lines


def _is_new_state(before: NodeSnapshot | None, after: NodeSnapshot) -> bool:
    if before is None or before.block != after.block:
        return True
    if {before.state, after.state} <= _WAY_OF_A_ROUND:
        return False
    return before.state != after.state


def _num_rounds(snapshot: NodeSnapshot) -> int:
    return snapshot.rounds_averaged + snapshot.rounds_alone + snapshot.rounds_failed
