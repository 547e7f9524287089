"""Events as lines for people."""

from __future__ import annotations

from node.events.event import (
    AverageMade,
    BlockChosen,
    Event,
    FirstContribution,
    JoinFailed,
    LinesLost,
    Paused,
    PeerJoined,
    PeerLeft,
    PeerMoved,
    ReasonBegan,
    ReasonOver,
    Restarted,
    RoundFinished,
    Saved,
    Started,
    StateChanged,
    Stopped,
    SwarmSeen,
    Synced,
)
from node.tui.format import format_peer, plural


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
        case AverageMade():
            return f"average made with {plural(event.partners, 'other replica')}"
        case FirstContribution():
            return f"first accepted contribution after {event.after_s:.1f} s"
        case Saved():
            return f"saved round {event.round} of block {event.block}"
        case ReasonBegan():
            return f"{event.severity}: {event.code}: {event.words}"
        case ReasonOver():
            return f"no longer: {event.code}"
        case PeerJoined() | PeerMoved():
            where = "chooses a block" if event.block is None else f"holds block {event.block}"
            return f"peer {format_peer(event.peer_id)} {where}"
        case PeerLeft():
            return f"peer {format_peer(event.peer_id)} is gone"
        case SwarmSeen():
            return f"{event.num_peers} peers"
        case Stopped():
            return f"stopped: {event.reason}"
        case LinesLost():
            return f"{event.num} events are missing: the disk did not take them"
        case _:
            return event.kind.replace("_", " ")
