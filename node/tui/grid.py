"""The grid: rows of cells under column titles, as a table on a canvas and as plain lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from node.tui.canvas import DIM, Canvas

_ROOMY_WIDTH = 60
"""Narrower canvases have one space between columns instead of two."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    title: str
    min_width: int
    """Columns the grid must have at its disposal for this one to be shown."""
    is_number: bool = True


Row = Mapping[str, Text]
"""Column title -> cell; missing cells are empty."""


def grid(columns: Sequence[Column], rows: Sequence[Row], canvas: Canvas) -> Table:
    """The rows below the titles of the columns that have room, each in one line.

    Only a last column of words gives way where the canvas is narrow: half a number is a wrong one.
    """
    shown = [column for column in columns if canvas.inner_width >= column.min_width]
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2 if canvas.width >= _ROOMY_WIDTH else 1, 0, 0),
        header_style=DIM,
    )
    for column in shown:
        gives_way = column is shown[-1] and not column.is_number
        cells = [row[column.title].cell_len for row in rows if column.title in row]
        table.add_column(
            column.title,
            min_width=None if gives_way else max([cell_len(column.title), *cells]),
            justify="right" if column.is_number else "left",
            no_wrap=True,
            overflow="crop" if canvas.ascii_only else "ellipsis",
        )
    for row in rows:
        table.add_row(*(row.get(column.title, Text()) for column in shown))
    return table


def grid_lines(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """All columns as plain text, each as wide as its content."""
    cells = [[column.title for column in columns]]
    cells += [
        [row[column.title].plain if column.title in row else "" for column in columns]
        for row in rows
    ]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            " " * (width - cell_len(cell)) + cell
            if column.is_number
            else cell + " " * (width - cell_len(cell))
            for column, cell, width in zip(columns, row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]
