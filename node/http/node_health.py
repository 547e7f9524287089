"""Whether a node does its work, in one document."""

from __future__ import annotations

from node.reasons.code import Severity
from node.reasons.judge import reasons_of
from node.snapshot import NodeSnapshot


def node_health(snapshot: NodeSnapshot, *, now_s: float) -> dict[str, object]:
    """The health of a node: "failing" while a reason holds that only its owner can cure.

    Args:
        snapshot: the node at this moment.
        now_s: DHT time.
    """
    reasons = reasons_of(snapshot, now_s=now_s)
    is_failing = any(reason.severity is Severity.ERROR for reason in reasons)
    return {
        "status": "failing" if is_failing else "ok",
        "state": snapshot.state,
        "run_id": snapshot.run_id,
        "peer_id": snapshot.peer_id,
        "block": snapshot.block,
        "round": snapshot.round_index,
        "updated_at_s": snapshot.updated_at_s,
        "reasons": [reason.document() for reason in reasons],
    }
