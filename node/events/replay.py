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
    Paused,
    PeerLeft,
    PeerSeen,
    ReasonBegan,
    ReasonOver,
    Restarted,
    Resumed,
    RoundFinished,
    Started,
    StateChanged,
    Stopped,
    SwarmSeen,
)
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.snapshot import MAX_LOSS_HISTORY, NodeSnapshot

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


class ReplayClock:
    """The time of the log, which passes faster; times in which no node ran are shortened."""

    def __init__(self, events: Sequence[Event], clock: Clock, *, speed: float) -> None:
        """Start at the first event.

        Args:
            events: at least one.
            clock: real time.
            speed: seconds of the log in one real second, above 0.
        """
        if not events:
            raise ConfigError("there is no event to replay")
        self._clock = clock
        self._speed = speed
        self._started_s = clock.monotonic_s()
        self._first_s = events[0].at_s
        self._last_s = max(event.at_s for event in events)
        self._gaps = _gaps(events)

    def now_s(self) -> float:
        """The moment of the log that is shown; stays at the last event."""
        now_s = self._first_s + (self._clock.monotonic_s() - self._started_s) * self._speed
        for begins_s, cut_s in self._gaps:
            if now_s >= begins_s:
                now_s += cut_s
        return min(now_s, self._last_s)

    def monotonic_s(self) -> float:
        """Real seconds: of drawing and polling."""
        return self._clock.monotonic_s()

    @property
    def is_over(self) -> bool:
        """Whether the last event has been shown."""
        return self.now_s() >= self._last_s


class Player:
    """Gives the scene of each moment; moments only go forward."""

    def __init__(self, events: Sequence[Event]) -> None:
        """Nothing has happened yet."""
        self._events = events
        self._next = 0
        self._scene = Scene()

    def scene(self, *, now_s: float) -> Scene:
        """The scene once everything up to a moment has happened."""
        while self._next < len(self._events) and self._events[self._next].at_s <= now_s:
            self._scene = scene_after(self._scene, self._events[self._next])
            self._next += 1
        return self._scene


def _gaps(events: Sequence[Event]) -> list[tuple[float, float]]:
    """Where no node ran: from when, in the log's time, and how much of it is left out."""
    found = []
    for before, after in itertools.pairwise(events):
        gap_s = after.at_s - before.at_s
        is_between_programs = isinstance(after, Started | Restarted | JoinFailed)
        if is_between_programs and gap_s > _GAP_S:
            found.append((before.at_s + _GAP_S, gap_s - _GAP_S))
    return found


def _start(scene: Scene, event: Started) -> Scene:
    if event.is_repeated and scene.snapshot is not None:
        return scene
    try:
        manifest = RunManifest.model_validate(event.manifest)
    except ValidationError:
        return Scene(num_unreadable=scene.num_unreadable + 1)
    snapshot = NodeSnapshot(
        pid=max(1, min(event.pid, 2**31 - 1)),
        peer_id=event.peer_id,
        run_id=event.run_id,
        started_at_s=event.at_s,
        updated_at_s=event.at_s,
        round_s=event.round_s,
    )
    is_same_run = scene.manifest is not None and scene.manifest.run_id == manifest.run_id
    return Scene(
        manifest=manifest,
        snapshot=snapshot,
        peers=scene.peers if is_same_run else (),
        num_unreadable=scene.num_unreadable,
    )


def _changes(snapshot: NodeSnapshot, event: Event) -> dict[str, object]:
    """Fields of the snapshot that an event changes."""
    match event:
        case BlockChosen():
            return {"block": event.block}
        case StateChanged():
            return {"state": event.state}
        case Paused():
            return {
                "state": "paused",
                "pause_reason": event.reason,
                "pause_words": event.words,
                "bytes_per_s": 0.0,
            }
        case Resumed():
            return {"state": "training", "pause_reason": "", "pause_words": ""}
        case RoundFinished():
            return _round_changes(snapshot, event)
        case FirstContribution():
            return {"first_average_s": event.after_s}
        case ReasonBegan():
            return {"noted": [*_other_reasons(snapshot, event.code), *_reasons(event)]}
        case ReasonOver():
            return {"noted": _other_reasons(snapshot, event.code)}
        case _:
            return {}


def _round_changes(snapshot: NodeSnapshot, event: RoundFinished) -> dict[str, object]:
    history = snapshot.loss_history
    if event.loss is not None:
        history = [*history, event.loss][-MAX_LOSS_HISTORY:]
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
        is_paused=peer.is_paused,
        copies=[
            BlockCopy(block=block, round_index=round_index) for block, round_index in peer.copies
        ],
        issued_at_s=now_s,
        expires_at_s=now_s + LEASE_TTL_S,
    )
