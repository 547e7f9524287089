"""Progress: what `bt-node join` reports, on a terminal as a panel below a log, else as lines."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from bt_p2p.clock import Clock, SystemClock
from node.snapshot import NodeSnapshot
from node.tui.canvas import Canvas
from node.tui.format import format_bytes, format_loss, format_rate, plain
from node.tui.panels import node_panel, warning_lines
from node.tui.terminal import is_ascii
from node.tui.words import block_words

_MIN_REDRAW_S = 0.25
_MAX_ROWS = 6
_MAX_WARNING_LINES = 4
_WAY_OF_A_ROUND = {"training", "averaging"}
"""States that alternate in every round; only the first is worth a line."""


class JoinReporter:
    """Tells the user what a running node does; may be called from any thread.

    On a terminal (`live`) one panel stays at the bottom and lines scroll above it. Otherwise, or
    on a terminal that cannot be redrawn, there are only lines, each with its time.
    """

    def __init__(
        self,
        console: Console,
        *,
        live: bool,
        ascii: bool = False,  # noqa: A002  # the word people use for it
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing is shown before the `with` block.

        Args:
            console: where to write.
            live: draw a panel, if the console can redraw.
            ascii: use ASCII only; implied where the console's encoding lacks the panel's lines.
            clock: times of lines and pace of drawing; of the system if None.
        """
        self._console = console
        self._ascii_only = ascii or is_ascii(console.file)
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._last: NodeSnapshot | None = None
        self._drawn_at_s = -math.inf
        self._live: Live | None = None
        if live and console.is_interactive:
            self._live = Live(
                console=console, auto_refresh=False, vertical_overflow="crop", transient=False
            )

    def __enter__(self) -> Self:
        """Start the panel, if there is one."""
        if self._live is not None:
            try:
                self._live.start()
            except BaseException:
                self._live.stop()
                raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Draw the newest state once more and give the terminal back."""
        if self._live is None:
            return
        try:
            with self._lock:
                if self._last is not None:
                    self._live.update(self._panel(self._last, self._clock.now_s()))
        finally:
            self._live.stop()

    def update(self, snapshot: NodeSnapshot, now_s: float) -> None:
        """Report what is new in a snapshot. Cheap: the panel is drawn at most four times a second.

        Args:
            snapshot: the node now.
            now_s: seconds since the epoch.
        """
        with self._lock:
            for text in event_lines(self._last, snapshot, with_states=self._live is None):
                self._print(text, now_s)
            self._last = snapshot
            if self._live is None:
                return
            tick_s = self._clock.monotonic_s()
            if tick_s - self._drawn_at_s >= _MIN_REDRAW_S:
                self._drawn_at_s = tick_s
                self._live.update(self._panel(snapshot, now_s), refresh=True)

    def line(self, text: str) -> None:
        """Print one line with its time, above the panel if there is one."""
        with self._lock:
            self._print(text, self._clock.now_s())

    def _print(self, text: str, now_s: float) -> None:
        time = datetime.fromtimestamp(now_s, tz=UTC).astimezone()
        clean = plain(text, ascii_only=self._ascii_only)
        if self._live is not None:
            line = Text.assemble((f"{time:%H:%M:%S} ", "dim"), clean)
            self._console.print(line)
        else:
            self._console.print(Text(f"{time:%Y-%m-%d %H:%M:%S} {clean}"), soft_wrap=True)

    def _panel(self, snapshot: NodeSnapshot, now_s: float) -> RenderableType:
        width, height = self._console.size
        canvas = Canvas(width=width, height=height, ascii_only=self._ascii_only)
        panel = node_panel(snapshot, now_s=now_s, canvas=canvas, max_rows=_MAX_ROWS)
        warnings: list[Text] = []
        if height > 2 * _MAX_ROWS:
            warnings = warning_lines(snapshot.warnings, canvas, max_lines=_MAX_WARNING_LINES)
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
        on = f" on {after.device}" if after.device else ""
        lines.append(f"{after.state}: {block_words(after)}{on}")
    if before is not None and _num_rounds(after) > _num_rounds(before):
        lines.append(
            f"round {before.round_index} finished: {after.last_outcome or 'no outcome'}; "
            f"loss {format_loss(after.loss)} nats/byte; {format_rate(after.bytes_per_s)}; "
            f"{format_bytes(after.bytes_sent)} sent"
        )
    known = set(before.warnings) if before is not None else set()
    lines += [f"warning: {warning}" for warning in after.warnings if warning not in known]
    return lines


def _is_new_state(before: NodeSnapshot | None, after: NodeSnapshot) -> bool:
    if before is None or before.block != after.block:
        return True
    if {before.state, after.state} <= _WAY_OF_A_ROUND:
        return False
    return before.state != after.state


def _num_rounds(snapshot: NodeSnapshot) -> int:
    return snapshot.rounds_averaged + snapshot.rounds_alone + snapshot.rounds_failed
