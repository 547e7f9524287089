"""The table of blocks: how well each is held, how far it is, how it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from bt_p2p.protocol.overview import BlockOverview, SwarmOverview
from node.tui.canvas import DIM, MINE, WARN, Canvas, loss_text, section
from node.tui.format import format_count, format_rate, plural, sparkline
from node.tui.grid import Column, Row, grid
from node.tui.words import is_stale

TREND_WIDTH = 20
"""Characters of the curve of a block's loss."""

COLUMNS = (
    Column("block", 0),
    Column("holders", 0),
    Column("round", 0),
    Column("loss", 0),
    Column("trend", 72, is_number=False),
    Column("speed", 56),
    Column("", 0, is_number=False),
)


def block_row(
    block: BlockOverview,
    *,
    mine: str | None,
    now_s: float,
    losses: Sequence[float] = (),
    ascii_only: bool = False,
) -> Row:
    """One block as a row.

    Args:
        block: with any number of holders.
        mine: peer id of the node on this machine.
        now_s: DHT time.
        losses: of the rounds seen, oldest first.
        ascii_only: draw the curve in ASCII.
    """
    num_holders = len(block.holders)
    is_mine = any(lease.peer_id == mine for lease in block.holders)
    num_stale = sum(is_stale(lease, now_s=now_s) for lease in block.holders)
    remarks = []
    if is_mine:
        remarks.append(("yours", MINE))
    if not num_holders:
        remarks.append(("no holder", WARN))
    if num_stale:
        remarks.append((f"{format_count(num_stale)} stale", WARN))
    if block.copiers:
        remarks.append((plural(len(block.copiers), "copy", "copies"), DIM))
    remark = Text()
    for number, part in enumerate(remarks):
        remark.append(", " if number else "").append(*part)
    curve = sparkline(losses, TREND_WIDTH, ascii_only=ascii_only) if len(losses) > 1 else ""
    return {
        "block": Text(str(block.index), style="bold"),
        "holders": Text(format_count(num_holders), style="" if num_holders > 1 else WARN),
        "round": Text("-" if block.round_index is None else str(block.round_index)),
        "loss": loss_text(block.loss),
        "trend": Text(curve, style="cyan"),
        "speed": Text(format_rate(block.bytes_per_s) if block.holders else "-"),
        "": remark,
    }


def blocks_section(
    overview: SwarmOverview,
    *,
    mine: str | None,
    now_s: float,
    trends: Mapping[int, Sequence[float]],
    max_rows: int,
    canvas: Canvas,
) -> RenderableType:
    """The table of blocks below its column titles, in at most so many rows."""
    blocks = most_needy(overview.blocks, mine=mine, max_rows=max_rows)
    rows = [
        block_row(
            block,
            mine=mine,
            now_s=now_s,
            losses=trends.get(block.index, ()),
            ascii_only=canvas.ascii_only,
        )
        for block in blocks
    ]
    parts: list[RenderableType] = [grid(COLUMNS, rows, canvas)]
    num_hidden = len(overview.blocks) - len(blocks)
    if num_hidden:
        parts.append(Text(f"+{plural(num_hidden, 'more block')}", style=DIM))
    return section(Text("blocks", style="bold"), "loss in nats per byte", parts, canvas)


def most_needy(
    blocks: Sequence[BlockOverview], *, mine: str | None, max_rows: int
) -> list[BlockOverview]:
    """All blocks if they fit; else one's own and those with the fewest holders, in their order.

    A last row is kept free for the count of blocks left out.
    """
    if len(blocks) <= max_rows:
        return list(blocks)

    def need(block: BlockOverview) -> tuple[bool, int, int]:
        is_mine = any(lease.peer_id == mine for lease in block.holders)
        return (not is_mine, len(block.holders), block.index)

    kept = sorted(blocks, key=need)[: max(0, max_rows - 1)]
    return sorted(kept, key=lambda block: block.index)
