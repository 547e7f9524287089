"""Two looks at the node, or at the swarm -> the events between them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.overview import SwarmOverview
from node.events.event import (
    MAX_LOSS,
    MAX_RATE,
    MAX_SECONDS,
    AverageMade,
    AverageRefused,
    BlockChosen,
    Event,
    FirstContribution,
    Paused,
    PeerJoined,
    PeerLeft,
    PeerMoved,
    PeerSeen,
    ReasonBegan,
    ReasonOver,
    Resumed,
    RoundFinished,
    StateChanged,
    SwarmSeen,
    shortened,
)
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.snapshot import NodeSnapshot

MAX_PEERS = 64
_WAY_OF_A_ROUND = frozenset({"training", "averaging"})
_PAUSED = "paused"


def node_events(before: NodeSnapshot, after: NodeSnapshot, *, at_s: float) -> list[Event]:
    """What happened to a node between two of its snapshots."""
    events: list[Event] = []
    if after.block is not None and after.block != before.block:
        events.append(BlockChosen(at_s=at_s, block=after.block, before=before.block))
    if after.state != before.state:
        events += _state_events(before.state, after, at_s)
    if num_rounds(after) > num_rounds(before):
        events += _round_events(before, after, at_s)
    if after.first_average_s is not None and before.first_average_s is None:
        events.append(
            FirstContribution(at_s=at_s, after_s=_within(after.first_average_s, MAX_SECONDS))
        )
    return events


def num_rounds(snapshot: NodeSnapshot) -> int:
    """Rounds that it has finished, however they ended."""
    return snapshot.rounds_averaged + snapshot.rounds_alone + snapshot.rounds_failed


def peer_events(
    before: SwarmOverview | None, after: SwarmOverview, *, mine: str, at_s: float
) -> list[Event]:
    """Other peers that have come, chosen a block, or gone between two views."""
    old = {} if before is None else _blocks_by_peer(before, mine)
    new = _blocks_by_peer(after, mine)
    events: list[Event] = []
    for peer_id, block in new.items():
        if peer_id not in old:
            events.append(PeerJoined(at_s=at_s, peer_id=peer_id, block=block))
        elif old[peer_id] != block:
            events.append(PeerMoved(at_s=at_s, peer_id=peer_id, block=block, before=old[peer_id]))
    events += [
        PeerLeft(at_s=at_s, peer_id=peer_id, block=block)
        for peer_id, block in old.items()
        if peer_id not in new
    ]
    return events


def reason_events(
    before: Mapping[ReasonCode, Reason], after: Mapping[ReasonCode, Reason], *, at_s: float
) -> list[Event]:
    """Reasons that have come or gone between two looks."""
    began: list[Event] = [
        ReasonBegan(
            at_s=at_s,
            code=code.value,
            severity=reason.severity.value,
            words=shortened(reason.evidence),
        )
        for code, reason in after.items()
        if code not in before
    ]
    over: list[Event] = [
        ReasonOver(at_s=at_s, code=code.value) for code in before if code not in after
    ]
    return began + over


def swarm_seen(overview: SwarmOverview, *, mine: str, at_s: float) -> SwarmSeen:
    """A view as an event: all peers, or as many as it takes, this node and a holder of each first."""
    leases = list(_leases(overview))
    first_of_each = {block.holders[0].peer_id for block in overview.blocks if block.holders}
    leases.sort(key=lambda lease: (lease.peer_id != mine, lease.peer_id not in first_of_each))
    return SwarmSeen(
        at_s=at_s,
        num_peers=overview.num_peers,
        peers=[_peer_seen(lease) for lease in leases[:MAX_PEERS]],
    )


def _peer_seen(lease: Lease) -> PeerSeen:
    return PeerSeen(
        peer_id=lease.peer_id,
        block=lease.block,
        state="training" if lease.state == "training" else "joining",
        round=lease.round_index,
        loss=lease.loss,
        bytes_per_s=round(lease.bytes_per_s, 1),
        partners=lease.partners,
        is_relayed=lease.is_relayed,
        is_paused=lease.is_paused,
        copies=[(copy.block, copy.round_index) for copy in lease.copies],
    )


def _within(value: float, limit: float) -> float:
    """What an event takes, however odd a clock or a measurement is: a node must not end by it."""
    return min(max(0.0, value), limit) if math.isfinite(value) else 0.0


def _leases(overview: SwarmOverview) -> Iterable[Lease]:
    for block in overview.blocks:
        yield from block.holders
    yield from overview.joining


def _blocks_by_peer(overview: SwarmOverview, mine: str) -> dict[str, int | None]:
    return {lease.peer_id: lease.block for lease in _leases(overview) if lease.peer_id != mine}


def _state_events(before: str, after: NodeSnapshot, at_s: float) -> list[Event]:
    events: list[Event] = []
    if before == _PAUSED:
        events.append(Resumed(at_s=at_s))
    if after.state == _PAUSED:
        words = shortened(after.pause_words)
        events.append(Paused(at_s=at_s, reason=after.pause_reason, words=words))
    elif not {before, after.state} <= _WAY_OF_A_ROUND:
        events.append(StateChanged(at_s=at_s, state=after.state))
    return events


def _round_events(before: NodeSnapshot, after: NodeSnapshot, at_s: float) -> list[Event]:
    if after.block is None:
        return []
    is_averaged = after.rounds_averaged > before.rounds_averaged
    is_refused = after.rounds_failed > before.rounds_failed
    words = shortened(after.last_outcome)
    loss = after.loss_history[-1] if after.loss_history else math.nan
    events: list[Event] = [
        RoundFinished(
            at_s=at_s,
            block=after.block,
            round=after.round_index,
            outcome="averaged" if is_averaged else "refused" if is_refused else "alone",
            words=words,
            loss=loss if 0.0 <= loss <= MAX_LOSS else None,
            partners=after.last_partners,
            bytes_per_s=round(_within(after.bytes_per_s, MAX_RATE), 1),
            steps=after.steps,
            bytes_trained=after.bytes_trained,
            bytes_sent=after.bytes_sent,
            requests_served=after.requests_served,
        )
    ]
    if is_averaged:
        events.append(AverageMade(at_s=at_s, round=after.round_index, partners=after.last_partners))
    if is_refused:
        events.append(
            AverageRefused(
                at_s=at_s,
                round=after.round_index,
                code="" if after.last_code is None else after.last_code.value,
                words=words,
            )
        )
    return events
