"""Panels: an overview of the swarm and a snapshot of this node -> something rich can draw.

Pure functions of their arguments. Every line is cut to the canvas, so the height of a drawing is
known before it is drawn and never exceeds the canvas.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from bt_p2p.protocol.manifest import is_run_id
from bt_p2p.protocol.overview import SwarmOverview
from node.reasons.code import Severity
from node.snapshot import NodeSnapshot
from node.tui.block_table import blocks_section
from node.tui.canvas import DIM, MINE, WARN, Canvas, fit, section, spread
from node.tui.format import (
    format_duration,
    format_peer,
    plain,
    plural,
    progress_bar,
)
from node.tui.grid import Row
from node.tui.node_rows import BAR_WIDTH, LABEL_WIDTH, NodeRow, node_rows
from node.tui.peer_table import peer_rows, peers_section
from node.tui.words import (
    block_words,
    invalid_words,
    joining_words,
    model_words,
    need_words,
    swarm_words,
    uncovered_words,
    warning_words,
)

MIN_WIDTH, MIN_HEIGHT = 40, 8
"""Smaller canvases only show a request for more room."""

_ADVICE = "enlarge to 60x15"
_ALL = 10_000
_CLAIMS = (
    ("node", 1, 2),
    ("blocks", 1, 4),
    ("node", 1, 4),
    ("blocks", 1, 6),
    ("peers", 2, 4),
    ("node", 1, 7),
    ("blocks", 1, 12),
    ("peers", 1, 12),
    ("node", 1, _ALL),
    ("blocks", 1, _ALL),
    ("peers", 1, _ALL),
)
"""Who gets lines in turn: section, fewest rows worth giving, rows it then has at most."""
_NEEDS_HEIGHT, _MODEL_HEIGHT = 14, 30
"""Canvases lower than this say neither what the swarm needs nor how large the model is."""
_MAX_WARNING_LENGTH = 600


def dashboard(
    overview: SwarmOverview | None,
    snapshot: NodeSnapshot | None,
    *,
    now_s: float,
    canvas: Canvas,
    notes: Sequence[str] = (),
    initial_peers: Sequence[str] = (),
    trends: Mapping[int, Sequence[float]] | None = None,
    first_peer: int = 0,
) -> RenderableType:
    """The whole screen: run, warnings, blocks, peers, this node.

    Args:
        overview: None before the first answer of the swarm.
        snapshot: None unless a node runs on this machine.
        now_s: DHT time, to which ages refer.
        canvas: the screen; at most its height is drawn.
        notes: warnings of the caller, shown before all others.
        initial_peers: addresses for the commands shown; "..." stands for them if there are none
            or no room.
        trends: losses of each block in the rounds seen, oldest first (`trends.Trends`).
        first_peer: the row of the table of peers to begin with.
    """
    if _is_tiny(canvas):
        return fit(Text(_ADVICE), canvas.width, canvas.ascii_only)
    plan = _arrange(overview, snapshot, now_s, canvas, notes, initial_peers)
    parts: list[RenderableType] = list(plan.lines)
    if snapshot is not None and plan.shares.node:
        rows = _most_important(plan.node, plan.shares.node)
        parts.append(_node_section(snapshot, overview, rows, canvas))
    if overview is not None and plan.shares.blocks:
        parts.append(
            blocks_section(
                overview,
                mine=snapshot.peer_id if snapshot is not None else None,
                now_s=now_s,
                trends=trends or {},
                max_rows=plan.shares.blocks,
                canvas=canvas,
            )
        )
    if plan.shares.peers:
        parts.append(
            peers_section(plan.peers, first=first_peer, max_rows=plan.shares.peers, canvas=canvas)
        )
    return Group(*parts)


def num_peers_shown(
    overview: SwarmOverview | None,
    snapshot: NodeSnapshot | None,
    *,
    now_s: float,
    canvas: Canvas,
    notes: Sequence[str] = (),
    initial_peers: Sequence[str] = (),
) -> int:
    """How many peers the dashboard of the same arguments shows at once."""
    if _is_tiny(canvas):
        return 0
    return _arrange(overview, snapshot, now_s, canvas, notes, initial_peers).shares.peers


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """What there is to show, and how many rows of it."""

    lines: Sequence[Text]
    node: Sequence[NodeRow]
    peers: Sequence[Row]
    shares: Shares


def _arrange(
    overview: SwarmOverview | None,
    snapshot: NodeSnapshot | None,
    now_s: float,
    canvas: Canvas,
    notes: Sequence[str],
    initial_peers: Sequence[str],
) -> _Plan:
    warnings = list(notes)
    if snapshot is not None:
        warnings += warning_words(snapshot, now_s=now_s, severities={Severity.ERROR})
    if overview is not None and overview.uncovered:
        short_of = canvas.width * 2 - 2
        warnings.append(uncovered_words(overview, initial_peers, max_width=short_of))
    if snapshot is not None:
        warnings += warning_words(snapshot, now_s=now_s, severities={Severity.WARNING})
    lines = _title(overview, snapshot, canvas)
    lines += warning_lines(warnings, canvas, max_lines=max(2, canvas.height // 4))
    node: Sequence[NodeRow] = ()
    peers: Sequence[Row] = ()
    if snapshot is not None:
        node = node_rows(snapshot, now_s=now_s, canvas=canvas, overview=overview)
    if overview is not None:
        lines += _swarm_lines(overview, snapshot, now_s, canvas)
        mine = snapshot.peer_id if snapshot is not None else None
        peers = peer_rows(overview, mine=mine, now_s=now_s, ascii_only=canvas.ascii_only)
    shares = share_lines(
        canvas.height - len(lines),
        node=len(node),
        blocks=len(overview.blocks) if overview is not None else 0,
        peers=len(peers),
        frame=canvas.frame_height,
    )
    return _Plan(lines=lines, node=node, peers=peers, shares=shares)


def _is_tiny(canvas: Canvas) -> bool:
    return canvas.width < MIN_WIDTH or canvas.height < MIN_HEIGHT


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Rows for each section; one without rows is left out, frame and all."""

    node: int
    blocks: int
    peers: int


def share_lines(height: int, *, node: int, blocks: int, peers: int, frame: int) -> Shares:
    """Divide the lines below the header.

    This node and the blocks come first, with a few rows each; then the peers, with at least two
    rows or none; what is left goes round.

    Args:
        height: lines to divide.
        node: rows about this node.
        blocks: rows of the table of blocks; titles come on top.
        peers: rows of the table of peers; titles come on top.
        frame: lines of a section beyond its content.
    """
    wanted = {"node": node, "blocks": blocks, "peers": peers}
    costs = {"node": frame, "blocks": frame + 1, "peers": frame + 1}
    given = dict.fromkeys(wanted, 0)
    left = height
    for name, least, most in _CLAIMS:
        more = min(wanted[name], most) - given[name]
        cost = 0 if given[name] else costs[name]
        if more <= 0 or left < cost + min(least, more):
            continue
        more = min(more, left - cost)
        given[name] += more
        left -= cost + more
    return Shares(**given)


def node_panel(
    snapshot: NodeSnapshot, *, now_s: float, canvas: Canvas, max_rows: int = 100
) -> RenderableType:
    """This node alone, in at most so many rows and a frame; it never exceeds the canvas."""
    if _is_tiny(canvas):
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
                ("" if row.label is None else row.label.ljust(LABEL_WIDTH), DIM), row.value
            ),
            canvas.inner_width,
            canvas.ascii_only,
        )
        for row in rows
    ]
    return section(title, "", lines, canvas)


def _title(
    overview: SwarmOverview | None, snapshot: NodeSnapshot | None, canvas: Canvas
) -> list[Text]:
    """Which run this is."""
    if overview is None:
        run_id = plain(snapshot.run_id, ascii_only=canvas.ascii_only) if snapshot else "bt-node"
        return [fit(_run_text(run_id), canvas.width, canvas.ascii_only)]
    objective = Text(f"{overview.manifest.objective.name} objective", DIM)
    return [spread(_run_text(overview.manifest.run_id), objective, canvas)]


def _swarm_lines(
    overview: SwarmOverview, snapshot: NodeSnapshot | None, now_s: float, canvas: Canvas
) -> list[Text]:
    """How the swarm is, and what it needs."""
    manifest = overview.manifest
    clock = Text() if snapshot is not None else _clock_text(manifest.rounds.round_s, now_s, canvas)
    lines = [spread(Text(swarm_words(overview)), clock, canvas)]
    if canvas.height < _NEEDS_HEIGHT:
        return lines
    if canvas.height >= _MODEL_HEIGHT:
        lines.append(fit(Text(model_words(manifest), DIM), canvas.width, canvas.ascii_only))
    mine = snapshot.peer_id if snapshot is not None else None
    need = need_words(overview, mine=mine, max_width=canvas.width)
    if need:
        lines.append(fit(Text(need, DIM), canvas.width, canvas.ascii_only))
    joining = joining_words(overview, ascii_only=canvas.ascii_only)
    invalid = invalid_words(overview)
    if joining or invalid:
        lines.append(spread(Text(joining or invalid), Text(invalid if joining else ""), canvas))
    return lines


def _clock_text(round_s: float, now_s: float, canvas: Canvas) -> Text:
    """The round under way for everybody: rounds are by the clock."""
    passed_s = now_s % round_s
    bar = progress_bar(passed_s / round_s, BAR_WIDTH // 2, ascii_only=canvas.ascii_only)
    return Text.assemble(f"round ends in {format_duration(round_s - passed_s)} ", (bar, "cyan"))


def _run_text(run_id: str) -> Text:
    """A run id with its name standing out from the hash."""
    if not is_run_id(run_id):
        return Text(run_id, "bold")
    name, dash, digest = run_id.rpartition("-")
    return Text.assemble((name, "bold"), (dash + digest, DIM))
