"""`bt-node why`: the reasons of the node that runs here, with evidence and what to do next."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from bt_p2p.clock import SystemClock
from node import exit_codes
from node.reasons.judge import reasons_of
from node.reasons.reason import Reason
from node.snapshot import NodeSnapshot, read_snapshot
from node.state_dir import StateDir
from node.tui.format import format_duration, plain
from node.tui.terminal import is_ascii, make_console

_INDENT = "  "
_MIN_WIDTH = 40


def show_why(*, as_json: bool, state_path: Path) -> int:
    """Print why the node here is as it is; asks nobody, so it answers at once."""
    snapshot = read_snapshot(StateDir(state_path).path)
    now_s = SystemClock().now_s()
    reasons = [] if snapshot is None else reasons_of(snapshot, now_s=now_s)
    if as_json:
        text = json.dumps(why_document(snapshot, reasons, state_path)) + "\n"
    else:
        text = why_text(snapshot, reasons, state_path, now_s=now_s, width=make_console().width)
    sys.stdout.write(plain_lines(text, ascii_only=is_ascii(sys.stdout)) if not as_json else text)
    sys.stdout.flush()
    return exit_codes.OK


def why_document(
    snapshot: NodeSnapshot | None, reasons: Sequence[Reason], state_path: Path
) -> dict[str, object]:
    """As one JSON document; docs/reference/reasons.md describes it."""
    return {
        "state_dir": str(state_path),
        "is_running": snapshot is not None,
        "peer_id": None if snapshot is None else snapshot.peer_id,
        "state": None if snapshot is None else snapshot.state,
        "reasons": [reason.document() for reason in reasons],
    }


def why_text(
    snapshot: NodeSnapshot | None,
    reasons: Sequence[Reason],
    state_path: Path,
    *,
    now_s: float,
    width: int,
) -> str:
    """In words: a paragraph for each reason, the gravest first."""
    if snapshot is None:
        return f"no node runs here (state folder {state_path}); start one with: bt-node join\n"
    if not reasons:
        return f"all is well: {snapshot.state} block {snapshot.block}, {snapshot.last_outcome}\n"
    return "\n".join(_paragraph(reason, now_s=now_s, width=width) for reason in reasons)


def plain_lines(text: str, *, ascii_only: bool) -> str:
    """Strangers' words in it reach no terminal as anything but text."""
    return "".join(
        f"{plain(line, ascii_only=ascii_only).rstrip()}\n" for line in text.split("\n")[:-1]
    )


def _paragraph(reason: Reason, *, now_s: float, width: int) -> str:
    document = reason.document()
    held = "" if reason.since_s is None else f", for {format_duration(now_s - reason.since_s)}"
    lines = [f"{reason.severity} {reason.code}: {document['title']}{held}"]
    for label, words in (
        ("evidence", reason.evidence),
        ("meaning", document["meaning"]),
        ("next", document["next"]),
    ):
        lines += textwrap.wrap(
            f"{label}: {words}",
            max(width, _MIN_WIDTH) - len(_INDENT),
            initial_indent=_INDENT,
            subsequent_indent=2 * _INDENT,
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "".join(f"{line}\n" for line in lines)
