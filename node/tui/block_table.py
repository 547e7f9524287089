"""The table of blocks: who holds which, as rows that fit a number of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.overview import BlockOverview, SwarmOverview
from node.tui.canvas import DIM, MINE, WARN, Canvas, loss_text, section, state_text
from node.tui.format import format_count, format_duration, format_peer, format_rate, plural
from node.tui.words import is_stale

_ROOMY_WIDTH = 60
"""Narrower canvases have one space between columns instead of two."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table of blocks."""

    title: str
    min_width: int
    """Columns the table must have at its disposal for this one to be shown."""
    is_number: bool = True


COLUMNS = (
    Column("block", 0),
    Column("round", 0),
    Column("loss", 0),
    Column("speed", 70),
    Column("holder", 0, is_number=False),
    Column("state", 0, is_number=False),
    Column("at round", 70),
    Column("age", 50),
    Column("its loss", 100),
    Column("its speed", 100),
    Column("partners", 110),
)
"""The columns up to "speed" are of the block, the others of one holder."""

Row = dict[str, Text]
"""Column title -> cell; missing cells are empty."""


def block_rows(
    block: BlockOverview,
    *,
    mine: str | None,
    now_s: float,
    ascii_only: bool = False,
    max_rows: int | None = None,
) -> list[Row]:
    """One block as rows of the table: a row for each holder, or a count of those left out.

    Args:
        block: with any number of holders.
        mine: peer id of the node on this machine, shown first and marked.
        now_s: DHT time.
        ascii_only: write ids in ASCII.
        max_rows: at least 1; None for all.
    """
    first: Row = {
        "block": Text(str(block.index), style="bold"),
        "round": Text("-" if block.round_index is None else str(block.round_index)),
        "loss": loss_text(block.loss),
        "speed": Text(format_rate(block.bytes_per_s) if block.holders else "-"),
    }
    holders = sorted(block.holders, key=lambda lease: lease.peer_id != mine)
    num_rows = max(1, len(holders)) if max_rows is None else max_rows
    if not holders:
        return [first | {"holder": Text("no holder", style=WARN)}]
    if num_rows == 1 and len(holders) > 1:
        return [first | _crowd_cells(holders, mine, now_s)]
    num_shown = len(holders) if len(holders) <= num_rows else num_rows - 1
    rows = [_holder_cells(lease, mine, now_s, ascii_only) for lease in holders[:num_shown]]
    rows[0] = first | rows[0]
    if num_shown < len(holders):
        more = f"+{format_count(len(holders) - num_shown)} more"
        rows.append({"holder": Text(more, style=DIM)})
    return rows


def _holder_cells(lease: Lease, mine: str | None, now_s: float, ascii_only: bool) -> Row:
    is_mine = lease.peer_id == mine
    name = format_peer(lease.peer_id, ascii_only=ascii_only) + (" (you)" if is_mine else "")
    stale = is_stale(lease, now_s=now_s)
    style = DIM if stale else ""
    return {
        "holder": Text(name, style=MINE if is_mine else style),
        "state": Text("stale", style=WARN) if stale else state_text(lease.state),
        "at round": Text(str(lease.round_index), style=style),
        "age": Text(format_duration(lease.age_s(now_s)), style=WARN if stale else DIM),
        "its loss": loss_text(lease.loss),
        "its speed": Text(format_rate(lease.bytes_per_s), style=style),
        "partners": Text(format_count(lease.partners), style=style),
    }


def _crowd_cells(holders: Sequence[Lease], mine: str | None, now_s: float) -> Row:
    """Many holders in one row."""
    num_stale = sum(is_stale(lease, now_s=now_s) for lease in holders)
    is_mine = any(lease.peer_id == mine for lease in holders)
    others = format_count(len(holders) - 1)
    holder = f"you +{others} more" if is_mine else plural(len(holders), "holder")
    state = Text(f"{format_count(num_stale)} stale", style=WARN) if num_stale else Text()
    return {"holder": Text(holder, style=MINE if is_mine else ""), "state": state}


def blocks_section(
    overview: SwarmOverview, mine: str | None, now_s: float, max_rows: int, canvas: Canvas
) -> RenderableType:
    """The table of blocks below its column titles, in at most so many rows."""
    columns = [column for column in COLUMNS if canvas.inner_width >= column.min_width]
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2 if canvas.width >= _ROOMY_WIDTH else 1, 0, 0),
        header_style=DIM,
    )
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            no_wrap=True,
            overflow="crop" if canvas.ascii_only else "ellipsis",
        )
    shares = _share_rows([len(block.holders) for block in overview.blocks], max_rows)
    for block, share in zip(overview.blocks, shares, strict=False):
        for row in block_rows(
            block, mine=mine, now_s=now_s, ascii_only=canvas.ascii_only, max_rows=share
        ):
            table.add_row(*(row.get(column.title, Text()) for column in columns))
    parts: list[RenderableType] = [table]
    num_hidden = len(overview.blocks) - len(shares)
    if num_hidden:
        parts.append(Text(f"+{plural(num_hidden, 'more block')}", style=DIM))
    return section(Text("blocks", style="bold"), "loss in nats per byte", parts, canvas)


def num_rows_wanted(overview: SwarmOverview) -> int:
    """Rows that show every holder."""
    return sum(max(1, len(block.holders)) for block in overview.blocks)


def _share_rows(nums_holders: Sequence[int], max_rows: int) -> list[int]:
    """Rows for each block, as even as can be; fewer blocks than given if not all fit.

    A last row is kept free for the count of blocks left out.
    """
    if len(nums_holders) > max_rows:
        return [1] * max(0, max_rows - 1)
    wanted = [max(1, num) for num in nums_holders]
    shares = [1] * len(wanted)
    spare = max_rows - len(shares)
    while spare:
        hungry = [i for i, share in enumerate(shares) if share < wanted[i]]
        if not hungry:
            break
        for index in hungry[:spare]:
            shares[index] += 1
        spare -= min(spare, len(hungry))
    return shares
