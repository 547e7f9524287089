"""The table of peers: one's own first, then those in trouble, then block by block."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import MAX_ROUND_LAG
from bt_p2p.protocol.overview import SwarmOverview
from node.tui.canvas import DIM, MINE, WARN, Canvas, loss_text, section, state_text
from node.tui.format import format_count, format_duration, format_peer, format_rate
from node.tui.grid import Column, Row, grid
from node.tui.words import is_stale

COLUMNS = (
    Column("peer", 0, is_number=False),
    Column("block", 0),
    Column("state", 0, is_number=False),
    Column("round", 0),
    Column("loss", 46),
    Column("speed", 56),
    Column("age", 62),
    Column("partners", 72),
    Column("reach", 80, is_number=False),
    Column("serves copies of", 100, is_number=False),
)


def sorted_peers(overview: SwarmOverview, *, mine: str | None, now_s: float) -> list[Lease]:
    """All live peers: one's own, stale ones, those far behind, then by block; joining ones last."""
    newest = {block.index: block.round_index or 0 for block in overview.blocks}

    def place(lease: Lease) -> tuple[object, ...]:
        block = len(newest) if lease.block is None else lease.block
        return (
            lease.peer_id != mine,
            not is_stale(lease, now_s=now_s),
            _lag(lease, newest.get(block)) <= MAX_ROUND_LAG,
            block,
            -lease.round_index,
            lease.peer_id,
        )

    holders = [lease for block in overview.blocks for lease in block.holders]
    return sorted([*holders, *overview.joining], key=place)


def peer_row(
    lease: Lease,
    *,
    newest_round: int | None,
    mine: str | None,
    now_s: float,
    ascii_only: bool = False,
) -> Row:
    """One peer as a row.

    Args:
        lease: what it says of itself.
        newest_round: of any holder of its block; None if it has none.
        mine: peer id of the node on this machine, marked.
        now_s: DHT time.
        ascii_only: write ids in ASCII.
    """
    is_mine = lease.peer_id == mine
    stale = is_stale(lease, now_s=now_s)
    name = format_peer(lease.peer_id, ascii_only=ascii_only) + (" (you)" if is_mine else "")
    style = DIM if stale else ""
    lag = _lag(lease, newest_round)
    is_new = lease.block is None or lease.state == "joining"
    round_text = Text("-" if is_new else str(lease.round_index), style=style)
    if lag:
        round_text = Text(
            f"{lease.round_index} (-{lag})", style=WARN if lag > MAX_ROUND_LAG else style
        )
    return {
        "peer": Text(name, style=MINE if is_mine else style),
        "block": Text("-" if lease.block is None else str(lease.block), style=style),
        "state": Text("stale", style=WARN) if stale else _state_of(lease),
        "round": round_text,
        "loss": loss_text(lease.loss),
        "speed": Text(format_rate(lease.bytes_per_s), style=style),
        "age": Text(format_duration(lease.age_s(now_s)), style=WARN if stale else DIM),
        "partners": Text(format_count(lease.partners), style=style),
        "reach": Text("relayed" if lease.is_relayed else "direct", style=DIM),
        "serves copies of": Text(", ".join(str(copy.block) for copy in lease.copies), style=style),
    }


def _state_of(lease: Lease) -> Text:
    return state_text("paused" if lease.is_paused else lease.state)


def peer_rows(
    overview: SwarmOverview, *, mine: str | None, now_s: float, ascii_only: bool = False
) -> list[Row]:
    """All peers as rows, sorted."""
    newest = {block.index: block.round_index for block in overview.blocks}
    return [
        peer_row(
            lease,
            newest_round=None if lease.block is None else newest.get(lease.block),
            mine=mine,
            now_s=now_s,
            ascii_only=ascii_only,
        )
        for lease in sorted_peers(overview, mine=mine, now_s=now_s)
    ]


def peers_section(
    rows: Sequence[Row], *, first: int, max_rows: int, canvas: Canvas
) -> RenderableType:
    """A window on the rows, below their column titles.

    Args:
        rows: all of them.
        first: the row to begin with, if so many follow.
        max_rows: how many fit, at least 1.
        canvas: what to draw on.
    """
    first = clamp_first(first, len(rows), max_rows)
    shown = rows[first : first + max_rows]
    note = ""
    if len(shown) < len(rows):
        note = f"{first + 1}-{first + len(shown)} of {format_count(len(rows))}, arrows scroll"
    parts = [grid(COLUMNS, shown, canvas)]
    return section(Text("peers", style="bold"), note, parts, canvas)


def clamp_first(first: int, num_rows: int, max_rows: int) -> int:
    """The nearest first row that fills the window."""
    return max(0, min(first, num_rows - max_rows))


def _lag(lease: Lease, newest_round: int | None) -> int:
    """Rounds that a holder is behind the newest of its block; who only fetches it is not behind."""
    if lease.block is None or newest_round is None or lease.state != "training":
        return 0
    return max(0, newest_round - lease.round_index)
