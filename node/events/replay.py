"""Events -> what the dashboard showed at their time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from bt_p2p.clock import Clock
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.lease import BlockCopy, Lease, LeaseView
from bt_p2p.protocol.limits import LEASE_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from node.events.event import (
    BlockChosen,
    Event,
    FirstContribution,
    JoinFailed,
    LinesLost,
    Paused,
    PeerJoined,
    PeerLeft,
    PeerMoved,
    PeerSeen,
    ReasonBegan,
    ReasonOver,
    Restarted,
    Resumed,
    RoundFinished,
    Saved,
    Started,
    StateChanged,
    Stopped,
    SwarmSeen,
    Synced,
)
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.snapshot import NodeSnapshot

_MAX_LOSSES = 60
_OF_THE_STATE = frozenset(
    {
        ReasonCode.STARTING,
        ReasonCode.CHOOSING_BLOCK,
        ReasonCode.WAITING_FOR_WEIGHTS,
        ReasonCode.PAUSED,
        ReasonCode.REBUILDING,
        ReasonCode.LEAVING,
        ReasonCode.FIRST_ROUND,
    }
)
"""What is concluded from the state of a scene again."""
_GAP_S = 5.0
"""Time in which no node ran is shortened to this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What is known at one moment."""

    manifest: RunManifest | None = None
    """None before the first start that can be read."""
    snapshot: NodeSnapshot | None = None
    """The node; None while none runs."""
    peers: tuple[PeerSeen, ...] = ()
    num_unreadable: int = 0
    """Starts whose manifest is not valid; what follows them cannot be shown."""

    def overview(self, *, now_s: float) -> SwarmOverview | None:
        """The swarm as it was last seen, with leases that are fresh."""
        if self.manifest is None:
            return None
        run_id = self.manifest.run_id
        leases = tuple(_lease(peer, run_id, now_s) for peer in self.peers)
        return make_overview(self.manifest, LeaseView(leases=leases, num_invalid=0), now_s=now_s)


def scene_after(scene: Scene, event: Event) -> Scene:
    """The scene once an event has happened."""
    match event:
        case Started():
            return _start(scene, event)
        case Stopped():
            return dataclasses.replace(scene, snapshot=None)
        case SwarmSeen():
            return dataclasses.replace(scene, peers=tuple(event.peers))
        case PeerLeft():
            peers = tuple(peer for peer in scene.peers if peer.peer_id != event.peer_id)
            return dataclasses.replace(scene, peers=peers)
        case _ if scene.snapshot is not None:
            changes = {**_changes(scene.snapshot, event), "updated_at_s": event.at_s}
            return dataclasses.replace(scene, snapshot=scene.snapshot.model_copy(update=changes))
        case _:
            return scene


def last_scene(events: Iterable[Event]) -> Scene:
    """The scene at the end."""
    scene = Scene()
    for event in events:
        scene = scene_after(scene, event)
    return scene


def event_words(event: Event) -> str:  # noqa: C901 - one line for each kind
    """An event as one line for people."""
    match event:
        case Started():
            if event.is_repeated:
                return f"new file of the log of run {event.run_id}"
            return f"started in run {event.run_id} with bt_p2p {event.program}"
        case Restarted():
            return f"restarted (number {event.num_total}): {event.reason}"
        case JoinFailed():
            return f"join failed ({event.cause}): {event.words}"
        case BlockChosen():
            before = "" if event.before is None else f" in place of block {event.before}"
            return f"block {event.block} chosen{before}"
        case StateChanged():
            return event.state
        case Paused():
            return f"paused: {event.words or event.reason}"
        case Synced():
            return f"took round {event.round} of block {event.block} from {event.source}"
        case RoundFinished():
            loss = "" if event.loss is None else f"; loss {event.loss:.3f} nats/byte"
            return f"round {event.round} of block {event.block}: {event.words}{loss}"
        case FirstContribution():
            return f"first accepted contribution after {event.after_s:.1f} s"
        case Saved():
            return f"saved round {event.round} of block {event.block}"
        case ReasonBegan():
            return {"noted": [*_other_reasons(snapshot, event.code), *_reasons(event)]}
        case ReasonOver():
            return {"noted": _other_reasons(snapshot, event.code)}
        case _:
            return {}


def _round_changes(snapshot: NodeSnapshot, event: RoundFinished) -> dict[str, object]:
    history = snapshot.loss_history
    if event.loss is not None:
        history = [*history, event.loss][-_MAX_LOSSES:]
    is_averaged = event.outcome == "averaged"
    return {
        "block": event.block,
        "round_index": event.round,
        "round_ends_at_s": event.at_s + (snapshot.round_s or 0.0),
        "loss": event.loss,
        "loss_history": history,
        "bytes_per_s": event.bytes_per_s,
        "steps": event.steps,
        "bytes_trained": event.bytes_trained,
        "bytes_sent": event.bytes_sent,
        "requests_served": event.requests_served,
        "rounds_averaged": snapshot.rounds_averaged + is_averaged,
        "rounds_alone": snapshot.rounds_alone + (event.outcome == "alone"),
        "rounds_failed": snapshot.rounds_failed + (event.outcome == "refused"),
        "last_partners": event.partners,
        "last_outcome": event.words,
        "last_average_at_s": event.at_s if is_averaged else snapshot.last_average_at_s,
    }


def _reasons(event: ReasonBegan) -> list[Reason]:
    """As noted; none if it follows from the state, or if it is of a newer version."""
    if event.code in _OF_THE_STATE or event.code not in list(ReasonCode):
        return []
    code = ReasonCode(event.code)
    return [Reason(code=code, evidence=event.words, since_s=event.at_s)]


def _other_reasons(snapshot: NodeSnapshot, code: str) -> list[Reason]:
    return [reason for reason in snapshot.noted if reason.code.value != code]


def _lease(peer: PeerSeen, run_id: str, now_s: float) -> Lease:
    return Lease(
        run_id=run_id,
        peer_id=peer.peer_id,
        boot_id="",
        block=peer.block,
        state=peer.state,
        round_index=peer.round,
        loss=peer.loss,
        bytes_per_s=peer.bytes_per_s,
        partners=peer.partners,
        is_relayed=peer.is_relayed,
        copies=[
            BlockCopy(block=block, round_index=round_index) for block, round_index in peer.copies
        ],
        issued_at_s=now_s,
        expires_at_s=now_s + LEASE_TTL_S,
    )
