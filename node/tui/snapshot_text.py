"""The snapshot: the same facts as the dashboard once, as plain text or as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.overview import SwarmOverview
from node.reasons.judge import reasons_of
from node.receipts import Receipt
from node.snapshot import NodeSnapshot
from node.tui.block_table import COLUMNS as BLOCK_COLUMNS
from node.tui.block_table import block_row
from node.tui.canvas import Canvas
from node.tui.format import plain
from node.tui.grid import grid_lines
from node.tui.node_rows import node_rows
from node.tui.peer_table import COLUMNS as PEER_COLUMNS
from node.tui.peer_table import peer_rows
from node.tui.words import (
    invalid_words,
    joining_words,
    model_words,
    need_words,
    swarm_words,
    uncovered_words,
    warning_words,
)

_LABEL_WIDTH = 9


def status_text(
    overview: SwarmOverview | None,
    snapshot: NodeSnapshot | None,
    now_s: float,
    width: int,
    *,
    ascii_only: bool = False,
    initial_peers: Sequence[str] = (),
) -> str:
    """Everything in lines of plain text, for pipes and files; no escapes, nothing cut.

    Args:
        overview: None if the swarm did not answer.
        snapshot: None unless a node runs on this machine.
        now_s: DHT time, to which ages refer.
        width: columns for the curve of the loss; lines are as long as their content.
        ascii_only: use ASCII only.
        initial_peers: addresses for the commands shown.

    Returns:
        Lines, each ended by a newline.
    """
    lines: list[str] = []
    mine = snapshot.peer_id if snapshot is not None else None
    if overview is not None:
        manifest = overview.manifest
        lines += [
            f"run {manifest.run_id}, {manifest.objective.name} objective",
            swarm_words(overview),
            model_words(manifest),
        ]
        lines += filter(
            None,
            [
                need_words(overview, mine=mine),
                joining_words(overview, ascii_only=ascii_only),
                invalid_words(overview),
            ],
        )
    lines += [f"warning: {text}" for text in _warnings(overview, snapshot, now_s, initial_peers)]
    if overview is not None:
        blocks = [block_row(block, mine=mine, now_s=now_s) for block in overview.blocks]
        columns = [column for column in BLOCK_COLUMNS if column.title != "trend"]
        lines += ["", *grid_lines(columns, blocks)]
        peers = peer_rows(overview, mine=mine, now_s=now_s, ascii_only=ascii_only)
        if peers:
            lines += ["", *grid_lines(PEER_COLUMNS, peers)]
        lines.append("loss in nats per byte")
    if snapshot is not None:
        if lines:
            lines.append("")
        lines += _node_lines(snapshot, overview, now_s, width, ascii_only)
    clean = (plain(line, ascii_only=ascii_only).rstrip() for line in lines)
    return "".join(f"{line}\n" for line in clean)


def status_document(
    overview: SwarmOverview | None, snapshot: NodeSnapshot | None, now_s: float
) -> dict[str, object]:
    """Everything as one JSON document; docs/reference/status-json.md describes it.

    Numbers are finite and strings are as their authors wrote them.

    Args:
        overview: None if the swarm did not answer.
        snapshot: None unless a node runs on this machine.
        now_s: DHT time, to which ages refer.
    """
    manifest = overview.manifest if overview is not None else None
    return {
        "run_id": manifest.run_id if manifest is not None else None,
        "name": manifest.name if manifest is not None else None,
        "objective": manifest.objective.name if manifest is not None else None,
        "num_blocks": manifest.model.num_blocks if manifest is not None else None,
        "peers": overview.num_peers if overview is not None else None,
        "uncovered": list(overview.uncovered) if overview is not None else [],
        "invalid_records": overview.num_invalid_records if overview is not None else 0,
        "joining": [_holder_document(lease, now_s) for lease in overview.joining]
        if overview is not None
        else [],
        "blocks": [
            {
                "block": block.index,
                "round": block.round_index,
                "loss_nats_per_byte": _finite(block.loss),
                "bytes_per_s": block.bytes_per_s,
                "holders": [_holder_document(lease, now_s) for lease in block.holders],
            }
            for block in (overview.blocks if overview is not None else ())
        ],
        "node": _node_document(snapshot, now_s) if snapshot is not None else None,
        "taken_at_s": overview.taken_at_s if overview is not None else now_s,
    }


def _warnings(
    overview: SwarmOverview | None,
    snapshot: NodeSnapshot | None,
    now_s: float,
    initial_peers: Sequence[str],
) -> list[str]:
    warnings: list[str] = []
    if overview is None:
        warnings.append("no answer from the swarm")
    elif overview.uncovered:
        warnings.append(uncovered_words(overview, initial_peers))
    if snapshot is not None:
        warnings += warning_words(snapshot, now_s=now_s)
    return warnings


def _node_lines(
    snapshot: NodeSnapshot,
    overview: SwarmOverview | None,
    now_s: float,
    width: int,
    ascii_only: bool,
) -> list[str]:
    canvas = Canvas(width=max(width, 40), height=100, ascii_only=ascii_only)
    lines = [f"this node {snapshot.peer_id} in run {snapshot.run_id}"]
    rows = node_rows(snapshot, now_s=now_s, canvas=canvas, overview=overview, full_addresses=True)
    for row in rows:
        label = "" if row.label is None else row.label.ljust(_LABEL_WIDTH)
        lines.append(f"  {label}{row.value.plain}")
    return lines


def _holder_document(lease: Lease, now_s: float) -> dict[str, object]:
    return {
        "peer_id": lease.peer_id,
        "state": lease.state,
        "is_paused": lease.is_paused,
        "round": lease.round_index,
        "copies": [{"block": copy.block, "round": copy.round_index} for copy in lease.copies],
        "loss": lease.loss,
        "bytes_per_s": lease.bytes_per_s,
        "partners": lease.partners,
        "is_relayed": lease.is_relayed,
        "age_s": round(lease.age_s(now_s), 3),
        "expires_in_s": round(max(0.0, lease.expires_at_s - now_s), 3),
    }


def _node_document(snapshot: NodeSnapshot, now_s: float) -> dict[str, object]:
    reasons = reasons_of(snapshot, now_s=now_s)
    return {
        "peer_id": snapshot.peer_id,
        "run_id": snapshot.run_id,
        "block": snapshot.block,
        "state": snapshot.state,
        "pause_reason": snapshot.pause_reason,
        "pause_words": snapshot.pause_words,
        "pause_until_s": _finite(snapshot.pause_until_s),
        "is_finishing": snapshot.is_finishing,
        "round": snapshot.round_index,
        "round_ends_in_s": _seconds_from(now_s, snapshot.round_ends_at_s),
        "loss_nats_per_byte": _finite(snapshot.loss),
        "loss_history": [_finite(loss) for loss in snapshot.loss_history],
        "bytes_per_s": _finite(snapshot.bytes_per_s),
        "steps": snapshot.steps,
        "bytes_trained": snapshot.bytes_trained,
        "rounds_averaged": snapshot.rounds_averaged,
        "rounds_alone": snapshot.rounds_alone,
        "rounds_failed": snapshot.rounds_failed,
        "last_outcome": snapshot.last_outcome,
        "last_average_age_s": _seconds_from(snapshot.last_average_at_s, now_s),
        "last_partners": snapshot.last_partners,
        "first_average_s": _finite(snapshot.first_average_s),
        "sync": snapshot.sync,
        "sync_done_bytes": snapshot.sync_done_bytes,
        "sync_size_bytes": snapshot.sync_size_bytes,
        "bytes_sent": snapshot.bytes_sent,
        "requests_served": snapshot.requests_served,
        "contribution": _contribution_document(snapshot.contribution),
        "rebuilds": snapshot.rebuilds,
        "addresses": list(snapshot.addresses),
        "reachable": snapshot.reachable or "unknown",
        "reachable_detail": snapshot.reachable_detail,
        "reasons": [reason.document() for reason in reasons],
        "warnings": [reason.line for reason in reasons if reason.is_warning],
        "device": snapshot.device,
        "state_dir": snapshot.state_dir,
        "disk_used_bytes": snapshot.disk_used_bytes,
        "disk_free_bytes": snapshot.disk_free_bytes,
        "pid": snapshot.pid,
        "started_at_s": _finite(snapshot.started_at_s),
        "updated_at_s": _finite(snapshot.updated_at_s),
    }


def _contribution_document(receipt: Receipt) -> dict[str, object]:
    return {
        "starts": receipt.num_starts,
        "rounds": receipt.rounds,
        "rounds_averaged": receipt.rounds_averaged,
        "samples": receipt.samples,
        "bytes_trained": receipt.bytes_trained,
        "bytes_sent": receipt.bytes_sent,
        "bytes_received": receipt.bytes_received,
        "trained_s": round(receipt.trained_s, 3),
        "first_at_s": receipt.first_at_s,
        "last_at_s": receipt.last_at_s,
    }


def _finite(value: float | None) -> float | None:
    """None for what JSON cannot say."""
    return value if value is not None and math.isfinite(value) else None


def _seconds_from(start_s: float | None, end_s: float | None) -> float | None:
    if start_s is None or end_s is None or not math.isfinite(end_s - start_s):
        return None
    return round(max(0.0, end_s - start_s), 3)
