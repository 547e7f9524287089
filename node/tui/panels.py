"""Panels: an overview of the swarm and a snapshot of this node -> something rich can draw.

Pure functions of their arguments. Every line is cut to the canvas, so the height of a drawing is
known before it is drawn and never exceeds the canvas.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from bt_p2p.protocol.manifest import is_run_id
from bt_p2p.protocol.overview import SwarmOverview
from node.snapshot import NodeSnapshot
from node.tui.block_table import blocks_section, num_rows_wanted
from node.tui.canvas import DIM, MINE, WARN, Canvas, fit, loss_text, section, spread, state_text
from node.tui.format import (
    format_bytes,
    format_count,
    format_duration,
    format_peer,
    format_rate,
    plain,
    plural,
    sparkline,
)
from node.tui.words import (
    address_words,
    block_words,
    invalid_words,
    is_loopback,
    joining_words,
    last_words,
    model_words,
    round_words,
    swarm_words,
    uncovered_words,
)

MIN_WIDTH, MIN_HEIGHT = 40, 8
"""Smaller canvases only show a request for more room."""

_ADVICE = "enlarge to 60x15"
_FULL_HEADER_HEIGHT = 14
_MAX_WARNING_LENGTH = 600
_LABEL_WIDTH = 9


def dashboard(
    overview: SwarmOverview | None,
    snapshot: NodeSnapshot | None,
    *,
    now_s: float,
    canvas: Canvas,
    notes: Sequence[str] = (),
    initial_peers: Sequence[str] = (),
) -> RenderableType:
    """The whole screen: run, warnings, blocks, this node.

    Args:
        overview: None before the first answer of the swarm.
        snapshot: None unless a node runs on this machine.
        now_s: DHT time, to which ages refer.
        canvas: the screen; at most its height is drawn.
        notes: warnings of the caller, shown before all others.
        initial_peers: addresses for the commands shown; "..." stands for them if there are none
            or no room.
    """
    if canvas.width < MIN_WIDTH or canvas.height < MIN_HEIGHT:
        return fit(Text(_ADVICE), canvas.width, canvas.ascii_only)
    warnings = list(notes)
    if overview is not None and overview.uncovered:
        short_of = canvas.width * 2 - 2
        warnings.append(uncovered_words(overview, initial_peers, max_width=short_of))
    warnings += snapshot.warnings if snapshot is not None else []

    lines = _header(overview, snapshot, canvas)
    lines += warning_lines(warnings, canvas, max_lines=max(2, canvas.height // 4))
    parts: list[RenderableType] = list(lines)
    left = canvas.height - len(lines)
    rows: list[NodeRow] = []
    if snapshot is not None:
        room = left
        if overview is not None:
            wanted = canvas.frame_height + 1 + num_rows_wanted(overview)
            least = min(left // 2, canvas.frame_height + 2)
            room = max(left * 2 // 5, left - wanted, least)
        rows = _most_important(
            node_rows(snapshot, now_s=now_s, canvas=canvas), max(1, room - canvas.frame_height)
        )
    if overview is not None:
        max_rows = left - canvas.frame_height - 1
        if rows:
            max_rows -= canvas.frame_height + len(rows)
        mine = snapshot.peer_id if snapshot is not None else None
        if max_rows > 0:
            parts.append(blocks_section(overview, mine, now_s, max_rows, canvas))
    if snapshot is not None:
        parts.append(_node_section(snapshot, overview, rows, canvas))
    return Group(*parts)


def node_panel(
    snapshot: NodeSnapshot, *, now_s: float, canvas: Canvas, max_rows: int = 100
) -> RenderableType:
    """This node alone, in at most so many rows and a frame; it never exceeds the canvas."""
    if canvas.width < MIN_WIDTH or canvas.height < MIN_HEIGHT:
        words = f"{block_words(snapshot)} {snapshot.state}"
        words = plain(words, ascii_only=canvas.ascii_only)
        return fit(Text(words), canvas.width, canvas.ascii_only)
    rows = node_rows(snapshot, now_s=now_s, canvas=canvas)
    rows = _most_important(rows, min(max_rows, canvas.height - canvas.frame_height))
    return _node_section(snapshot, None, rows, canvas)


def warning_lines(warnings: Sequence[str], canvas: Canvas, *, max_lines: int) -> list[Text]:
    """Warnings wrapped to the canvas, each marked; those that do not fit are counted."""
    lines: list[tuple[int, str]] = []
    for number, warning in enumerate(warnings):
        clean = plain(warning, ascii_only=canvas.ascii_only)[:_MAX_WARNING_LENGTH]
        parts = textwrap.wrap(clean, canvas.width - 2, break_on_hyphens=False)
        lines += [(number, ("  " if part else "! ") + words) for part, words in enumerate(parts)]
    if len(lines) > max_lines:
        number, words = lines[max_lines - 1]
        num_unseen = len(warnings) - number - (not words.startswith("!"))
        more = f"! {plural(num_unseen, 'more warning')}" if num_unseen else f"{words} ..."
        lines[max_lines - 1 :] = [(number, more)]
    return [fit(Text(line, WARN), canvas.width, canvas.ascii_only) for _, line in lines]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One line about this node."""

    rank: int
    """Where room is short, rows of the highest rank go first."""
    label: str | None
    """None for a headline, which starts where labels do."""
    value: Text


def node_rows(
    snapshot: NodeSnapshot, *, now_s: float, canvas: Canvas, full_addresses: bool = False
) -> list[NodeRow]:
    """Everything worth showing of a node, in order; addresses with full peer ids on request."""
    ascii_only = canvas.ascii_only
    spark_width = max(8, min(60, canvas.inner_width - _LABEL_WIDTH - 20))
    spark = sparkline(snapshot.loss_history, spark_width, ascii_only=ascii_only)
    state = Text.assemble(
        (block_words(snapshot), "bold"),
        " ",
        state_text(snapshot.state),
        f", {round_words(snapshot, now_s=now_s)}",
    )
    loss = Text.assemble(loss_text(snapshot.loss), " nats/byte  ", (spark, "cyan"))
    rows = [NodeRow(0, None, state)]
    if snapshot.sync:
        rows.append(NodeRow(1, "sync", Text(plain(snapshot.sync, ascii_only=ascii_only))))
    rows += [
        NodeRow(1, "loss", loss),
        NodeRow(
            4,
            "speed",
            Text(
                f"{format_rate(snapshot.bytes_per_s)}, {format_bytes(snapshot.bytes_trained)} in "
                f"{plural(snapshot.steps, 'step')}"
            ),
        ),
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


def _rounds_text(snapshot: NodeSnapshot) -> Text:
    failed = f"{format_count(snapshot.rounds_failed)} failed"
    return Text.assemble(
        f"{format_count(snapshot.rounds_averaged)} averaged, "
        f"{format_count(snapshot.rounds_alone)} alone, ",
        (failed, WARN if snapshot.rounds_failed else ""),
    )


def _most_important(rows: Sequence[NodeRow], max_rows: int) -> list[NodeRow]:
    """The rows of lowest rank, in their order."""
    ranked = sorted(range(len(rows)), key=lambda index: (rows[index].rank, index))
    kept = set(ranked[:max_rows])
    return [row for index, row in enumerate(rows) if index in kept]


def _node_section(
    snapshot: NodeSnapshot,
    overview: SwarmOverview | None,
    rows: Sequence[NodeRow],
    canvas: Canvas,
) -> RenderableType:
    peer = format_peer(snapshot.peer_id, ascii_only=canvas.ascii_only)
    title = Text.assemble(("this node", "bold"), " ", (peer, MINE))
    if overview is not None and overview.manifest.run_id != snapshot.run_id:
        other = plain(snapshot.run_id, ascii_only=canvas.ascii_only)
        title.append(f" in another run, {other}", style=WARN)
    lines: list[RenderableType] = [
        fit(
            Text.assemble(
                ("" if row.label is None else row.label.ljust(_LABEL_WIDTH), DIM), row.value
            ),
            canvas.inner_width,
            canvas.ascii_only,
        )
        for row in rows
    ]
    return section(title, "", lines, canvas)


def _header(
    overview: SwarmOverview | None, snapshot: NodeSnapshot | None, canvas: Canvas
) -> list[Text]:
    """Which run this is, and the swarm in a line or two."""
    if overview is None:
        run_id = plain(snapshot.run_id, ascii_only=canvas.ascii_only) if snapshot else "bt-node"
        return [fit(_run_text(run_id), canvas.width, canvas.ascii_only)]
    manifest = overview.manifest
    lines = [
        spread(
            _run_text(manifest.run_id), Text(f"{manifest.objective.name} objective", DIM), canvas
        ),
        fit(Text(swarm_words(overview)), canvas.width, canvas.ascii_only),
    ]
    if canvas.height < _FULL_HEADER_HEIGHT:
        return lines
    lines.append(fit(Text(model_words(manifest), DIM), canvas.width, canvas.ascii_only))
    joining = joining_words(overview, ascii_only=canvas.ascii_only)
    invalid = invalid_words(overview)
    if joining or invalid:
        lines.append(spread(Text(joining or invalid), Text(invalid if joining else ""), canvas))
    return lines


def _run_text(run_id: str) -> Text:
    """A run id with its name standing out from the hash."""
    if not is_run_id(run_id):
        return Text(run_id, "bold")
    name, dash, digest = run_id.rpartition("-")
    return Text.assemble((name, "bold"), (dash + digest, DIM))
