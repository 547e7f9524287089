"""From what a node knows of itself to the reasons why it is as it is; a pure function."""

from __future__ import annotations

from collections.abc import Iterator

from bt_p2p.protocol.limits import (
    FIRST_STEP_S,
    MIN_STALL_S,
    ROUNDS_WITHOUT_AVERAGE,
    SILENT_AFTER_S,
    STALL_STEPS,
    TOKEN_WARNING_S,
)
from node.reasons.code import ReasonCode, Severity
from node.reasons.reason import Reason
from node.snapshot import NodeSnapshot
from node.tui.format import format_duration, plural

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def reasons_of(snapshot: NodeSnapshot, *, now_s: float | None = None) -> list[Reason]:
    """Every reason that holds for a node, the gravest first; empty when it trains and averages.

    Args:
        snapshot: of the node.
        now_s: DHT time; without it, all that held when the snapshot was written. Whether the node
            reports at all can only be judged with it.
    """
    at_s = snapshot.updated_at_s if now_s is None else now_s
    found = [
        *filter(None, [None if now_s is None else silence_of(snapshot, now_s=now_s)]),
        *_of_the_token(snapshot, at_s),
        *snapshot.noted,
        *_of_the_state(snapshot, at_s),
        *_of_the_rounds(snapshot),
    ]
    return sorted(found, key=lambda reason: _ORDER.index(reason.severity))


def silence_of(snapshot: NodeSnapshot, *, now_s: float) -> Reason | None:
    """That a node lives but has fallen silent; None if it has not."""
    silence_s = now_s - snapshot.updated_at_s
    if not snapshot.updated_at_s or silence_s <= SILENT_AFTER_S:
        return None
    return Reason(
        code=ReasonCode.SILENT,
        evidence=f"the node on this machine (process {snapshot.pid}) has reported nothing for "
        f"{format_duration(silence_s)}",
        since_s=snapshot.updated_at_s,
    )


def _of_the_token(snapshot: NodeSnapshot, at_s: float) -> Iterator[Reason]:
    expires_at_s = snapshot.token_expires_at_s
    if expires_at_s is None:
        return
    if expires_at_s <= at_s:
        yield Reason(
            code=ReasonCode.TOKEN_EXPIRED,
            evidence=f"the run token expired {format_duration(at_s - expires_at_s)} ago",
            since_s=expires_at_s,
        )
    elif expires_at_s - at_s <= TOKEN_WARNING_S:
        yield Reason(
            code=ReasonCode.TOKEN_EXPIRES_SOON,
            evidence=f"the run token expires in {format_duration(expires_at_s - at_s)}",
        )


def _of_the_state(snapshot: NodeSnapshot, at_s: float) -> Iterator[Reason]:
    def reason(code: ReasonCode, evidence: str) -> Reason:
        return Reason(code=code, evidence=evidence)

    match snapshot.state:
        case "starting":
            yield reason(ReasonCode.STARTING, "the node has not entered the swarm yet")
        case "joining":
            yield reason(ReasonCode.CHOOSING_BLOCK, "the node has not chosen its block yet")
        case "syncing":
            how_far = snapshot.sync or "the download begins"
            yield reason(ReasonCode.WAITING_FOR_WEIGHTS, f"{how_far} (block {snapshot.block})")
        case "paused":
            yield reason(ReasonCode.PAUSED, snapshot.pause_words or "the node does not train now")
        case "rebuilding":
            yield reason(ReasonCode.REBUILDING, "a part of the node is broken")
        case "leaving":
            yield reason(ReasonCode.LEAVING, "the node was asked to stop")
        case "training":
            yield from _of_the_steps(snapshot, at_s)
    if snapshot.reachable == "relayed":
        yield reason(ReasonCode.RELAYED_ONLY, snapshot.reachable_detail or "behind a relay")


def _of_the_steps(snapshot: NodeSnapshot, at_s: float) -> Iterator[Reason]:
    last_s, usual_s = snapshot.last_step_at_s, snapshot.usual_step_s
    if last_s is None:
        return
    patience_s = FIRST_STEP_S if usual_s is None else max(MIN_STALL_S, STALL_STEPS * usual_s)
    if at_s - last_s > patience_s:
        usual = "no step before it" if usual_s is None else f"a step usually takes {usual_s:.2g} s"
        yield Reason(
            code=ReasonCode.STALLED_NO_STEP,
            evidence=f"no training step for {format_duration(at_s - last_s)}; {usual}",
            since_s=last_s,
        )


def _of_the_rounds(snapshot: NodeSnapshot) -> Iterator[Reason]:
    without = plural(snapshot.rounds_since_average, "round")
    if not snapshot.rounds_averaged + snapshot.rounds_alone + snapshot.rounds_failed:
        if snapshot.state in {"training", "averaging"}:
            evidence = f"the first round of block {snapshot.block} is under way"
            yield Reason(code=ReasonCode.FIRST_ROUND, evidence=evidence)
        return
    code = snapshot.last_code
    if code is None:
        return
    had_partner = snapshot.rounds_averaged > 0
    if snapshot.rounds_since_average >= ROUNDS_WITHOUT_AVERAGE and (
        had_partner or code is not ReasonCode.ALONE_NO_PARTNER
    ):
        yield Reason(
            code=ReasonCode.NO_AVERAGE_LATELY,
            evidence=f"{without} in a row without an average; last: {snapshot.last_outcome}",
            since_s=snapshot.last_average_at_s,
        )
    if code is ReasonCode.ALONE_NO_PARTNER:
        average = "" if had_partner else "; it has never averaged"
        evidence = f"{without} without another replica of block {snapshot.block}{average}"
        yield Reason(code=code, evidence=evidence, since_s=snapshot.last_average_at_s)
    else:
        yield Reason(code=code, evidence=snapshot.last_outcome)
