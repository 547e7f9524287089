"""What there is to say of a node, a line each."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from bt_p2p.protocol.overview import SwarmOverview
from node.snapshot import NodeSnapshot
from node.tui.canvas import DIM, WARN, Canvas, loss_text, state_text
from node.tui.format import (
    format_bytes,
    format_count,
    format_duration,
    format_rate,
    plain,
    plural,
    progress_bar,
    sparkline,
)
from node.tui.words import (
    address_words,
    block_words,
    contribution_words,
    is_loopback,
    last_words,
    loss_change_words,
    round_words,
    share_words,
    why_words,
)

BAR_WIDTH = 16
"""Of the longest bar or curve in a row."""
LABEL_WIDTH = 9


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One line about this node."""

    rank: int
    """Where room is short, rows of the highest rank go first."""
    label: str | None
    """None for a headline, which starts where labels do."""
    value: Text


def node_rows(
    snapshot: NodeSnapshot,
    *,
    now_s: float,
    canvas: Canvas,
    overview: SwarmOverview | None = None,
    full_addresses: bool = False,
) -> list[NodeRow]:
    """Everything worth showing of a node, in order.

    Args:
        snapshot: the node.
        now_s: DHT time.
        canvas: gives the width of curves and bars.
        overview: tells what the node is to the swarm; None if that is not known.
        full_addresses: with whole peer ids.
    """
    ascii_only = canvas.ascii_only
    rows = [NodeRow(0, None, _state_text(snapshot, now_s, canvas))]
    rows += [
        NodeRow(1, "why", Text(plain(words, ascii_only=ascii_only)))
        for words in why_words(snapshot, now_s=now_s)
    ]
    if snapshot.is_finishing:
        rows.append(NodeRow(1, "finish", Text("leaves after this round")))
    if snapshot.sync:
        rows.append(NodeRow(1, "sync", _sync_text(snapshot, canvas)))
    rows += [
        NodeRow(1, "loss", _loss_row_text(snapshot, canvas)),
        NodeRow(
            4,
            "speed",
            Text(
                f"{format_rate(snapshot.bytes_per_s)}, {format_bytes(snapshot.bytes_trained)} in "
                f"{plural(snapshot.steps, 'step')}"
            ),
        ),
        *_share_rows(snapshot, overview),
        NodeRow(3, "rounds", _rounds_text(snapshot)),
        NodeRow(2, "last", Text(plain(last_words(snapshot, now_s=now_s), ascii_only=ascii_only))),
        NodeRow(
            5,
            "traffic",
            Text(
                f"{format_bytes(snapshot.bytes_sent)} sent, "
                f"{plural(snapshot.requests_served, 'request')} served"
            ),
        ),
    ]
    if snapshot.contribution.rounds:
        rows.append(NodeRow(6, "given", Text(contribution_words(snapshot.contribution))))
    for index, address in enumerate(snapshot.addresses):
        words = address_words(address, full=full_addresses, ascii_only=ascii_only)
        style = DIM if is_loopback(address) else ""
        rows.append(NodeRow(6 + 3 * (index > 0), "" if index else "address", Text(words, style)))
    if snapshot.reachable:
        where = plain(f"{snapshot.reachable}: {snapshot.reachable_detail}", ascii_only=ascii_only)
        rows.append(NodeRow(5, "reach", Text(where)))
    up = f", up {format_duration(now_s - snapshot.started_at_s)}" if snapshot.started_at_s else ""
    device = plain(
        f"{snapshot.device or 'unknown'}{up}, process {snapshot.pid}", ascii_only=ascii_only
    )
    rows.append(NodeRow(7, "device", Text(device)))
    files = snapshot.state_dir
    if snapshot.disk_used_bytes is not None and snapshot.disk_free_bytes is not None:
        files += (
            f", {format_bytes(snapshot.disk_used_bytes)}, "
            f"{format_bytes(snapshot.disk_free_bytes)} free"
        )
    rows.append(NodeRow(8, "files", Text(plain(files, ascii_only=ascii_only))))
    return rows


def _state_text(snapshot: NodeSnapshot, now_s: float, canvas: Canvas) -> Text:
    """What the node does now, and how far its round is."""
    text = Text.assemble(
        (block_words(snapshot), "bold"),
        " ",
        state_text(snapshot.state),
        f", {round_words(snapshot, now_s=now_s)}",
    )
    ends_at_s, round_s = snapshot.round_ends_at_s, snapshot.round_s
    room = canvas.inner_width - text.cell_len - 2
    if ends_at_s is not None and round_s and snapshot.state != "paused" and room >= BAR_WIDTH // 2:
        share = 1 - (ends_at_s - now_s) / round_s
        bar = progress_bar(share, min(BAR_WIDTH, room), ascii_only=canvas.ascii_only)
        text.append(f"  {bar}", style="cyan")
    return text


def _sync_text(snapshot: NodeSnapshot, canvas: Canvas) -> Text:
    """How far the download of weights is."""
    text = Text(plain(snapshot.sync, ascii_only=canvas.ascii_only))
    room = canvas.inner_width - LABEL_WIDTH - text.cell_len - 2
    if snapshot.sync_size_bytes and room >= BAR_WIDTH // 2:
        share = snapshot.sync_done_bytes / snapshot.sync_size_bytes
        bar = progress_bar(share, min(BAR_WIDTH, room), ascii_only=canvas.ascii_only)
        text = Text.assemble((bar, "cyan"), "  ", text)
    return text


def _loss_row_text(snapshot: NodeSnapshot, canvas: Canvas) -> Text:
    """The loss, its curve, and where it goes."""
    text = Text.assemble(loss_text(snapshot.loss), " nats/byte")
    change = loss_change_words(snapshot.loss_history)
    room = canvas.inner_width - LABEL_WIDTH - text.cell_len - 2
    if room - len(change) - 2 < BAR_WIDTH:
        change = ""
    width = min(60, room - (len(change) + 2 if change else 0))
    spark = sparkline(snapshot.loss_history, width, ascii_only=canvas.ascii_only)
    return Text.assemble(text, "  ", (spark, "cyan"), f"  {change}" if change else "")


def _share_rows(snapshot: NodeSnapshot, overview: SwarmOverview | None) -> list[NodeRow]:
    """What the node is to the swarm, if that is known."""
    share = share_words(snapshot, overview)
    return [NodeRow(4, "share", Text(share))] if share else []


def _rounds_text(snapshot: NodeSnapshot) -> Text:
    failed = f"{format_count(snapshot.rounds_failed)} failed"
    return Text.assemble(
        f"{format_count(snapshot.rounds_averaged)} averaged, "
        f"{format_count(snapshot.rounds_alone)} alone, ",
        (failed, WARN if snapshot.rounds_failed else ""),
    )
