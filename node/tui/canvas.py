"""The canvas: how much room there is, which colours mean what, lines and frames that fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from node.tui.format import format_loss, plain

DIM, GOOD, WARN, BAD, MINE = "dim", "green", "yellow", "red", "bold cyan"
"""Styles: what recedes, is well, wants attention, is broken, is the user's own."""

_BOXED_WIDTH, _BOXED_HEIGHT = 60, 30
"""Canvases at least this large have frames; smaller ones have rules."""
_STATE_STYLES = {
    "training": GOOD,
    "averaging": "cyan",
    "starting": WARN,
    "joining": WARN,
    "syncing": WARN,
    "paused": WARN,
    "leaving": WARN,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Canvas:
    """The room there is to draw in."""

    width: int
    """Columns."""
    height: int
    """Lines."""
    ascii_only: bool = False
    """Draw with ASCII characters only."""

    @property
    def is_boxed(self) -> bool:
        """Whether there is room for frames."""
        return self.width >= _BOXED_WIDTH and self.height >= _BOXED_HEIGHT

    @property
    def frame_height(self) -> int:
        """Lines that a section needs beyond its content."""
        return 2 if self.is_boxed else 1

    @property
    def inner_width(self) -> int:
        """Columns inside a section."""
        return self.width - 4 if self.is_boxed else self.width


def state_text(state: str) -> Text:
    """A peer's state in its colour."""
    return Text(plain(state, ascii_only=True), style=_STATE_STYLES.get(state, ""))


def loss_text(loss: float | None) -> Text:
    """A loss, in red if it is not a number."""
    broken = loss is not None and not math.isfinite(loss)
    return Text(format_loss(loss), style=BAD if broken else "")


def fit(text: Text, width: int, ascii_only: bool) -> Text:
    """The text as exactly one line of at most so many columns."""
    fitted = text.copy()
    fitted.no_wrap, fitted.overflow = True, "crop"
    if fitted.cell_len > width:
        mark = "..." if ascii_only else "…"
        fitted.truncate(max(0, width - cell_len(mark)), overflow="crop")
        fitted.append(mark[: max(0, width)], style=DIM)
    return fitted


def spread(left: Text, right: Text, canvas: Canvas) -> Text:
    """Two texts at the two ends of one line; the right one only if it fits."""
    gap = canvas.width - left.cell_len - right.cell_len
    line = Text.assemble(left, " " * gap, right) if right.plain and gap >= 2 else left
    return fit(line, canvas.width, canvas.ascii_only)


def section(
    title: Text, note: str, body: Sequence[RenderableType], canvas: Canvas
) -> RenderableType:
    """A titled frame around the body, or on a small canvas a rule above it."""
    if canvas.is_boxed:
        return Panel(
            Group(*body),
            box=box.ASCII if canvas.ascii_only else box.ROUNDED,
            title=fit(title, canvas.width - 6, canvas.ascii_only),
            title_align="left",
            subtitle=Text(note) if note else None,
            subtitle_align="right",
            border_style=DIM,
        )
    dash = "-" if canvas.ascii_only else "─"
    title = fit(title, canvas.width, canvas.ascii_only)
    tail = f" {note} {dash}" if note and canvas.width - title.cell_len - len(note) >= 6 else ""
    filler = dash * max(0, canvas.width - title.cell_len - 1 - len(tail))
    rule = Text.assemble(title, (f" {filler}{tail}", DIM))
    return Group(fit(rule, canvas.width, canvas.ascii_only), *body)
