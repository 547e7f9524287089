"""Whether a node does its work, in one document."""

from __future__ import annotations

from node.snapshot import NodeSnapshot
from node.tui.words import STALL_AGE_S, stall_words


def node_health(snapshot: NodeSnapshot, *, now_s: float) -> dict[str, object]:
    """The health of a node: "ok", or "stalled" when it has told nothing for `STALL_AGE_S`.

    Args:
        snapshot: the node at this moment.
        now_s: time of the clock that the snapshot was made with.
    """
    silent_s = max(0.0, now_s - snapshot.updated_at_s) if snapshot.updated_at_s else 0.0
    return {
        "status": "stalled" if silent_s > STALL_AGE_S else "ok",
        "problem": stall_words(snapshot, now_s=now_s),
        "state": snapshot.state,
        "run_id": snapshot.run_id,
        "peer_id": snapshot.peer_id,
        "block": snapshot.block,
        "round": snapshot.round_index,
        "silent_s": round(silent_s, 3),
        "warnings": list(snapshot.warnings),
    }
