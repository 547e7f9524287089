"""The kinds of events, and their fields: docs/reference/events.md is written from this.

Readers skip kinds that they do not know and ignore unknown fields, so new ones need no new version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bt_p2p.protocol.limits import MAX_SPAN_BLOCKS

VERSION: Literal[1] = 1

Count = Annotated[int, Field(ge=0, lt=2**63)]
Time = Annotated[float, Field(ge=0, le=1e11)]
MAX_SECONDS = 1e11
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
MAX_LOSS = 1e6
MAX_RATE = 1e12
Loss = Annotated[float, Field(ge=0, le=MAX_LOSS)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE)]
Block = Annotated[int, Field(ge=0, lt=256)]
Words = Annotated[str, Field(max_length=2000)]
PeerId = Annotated[str, Field(max_length=64)]


class _Fields(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True
    )


class _Event(_Fields):
    version: Literal[1] = VERSION
    """Of this format; it changes when a reader of the old one would misread the new one."""
    at_s: Time
    """When, in seconds since the epoch."""


class Started(_Event):
    """The node has entered a swarm, and everything before this is of an earlier program."""

    kind: Literal["started"] = "started"
    run_id: Annotated[str, Field(max_length=64)]
    """The run it takes part in."""
    peer_id: PeerId
    """Who it is."""
    pid: Count
    """Its process."""
    program: Words
    """Version of bt_p2p."""
    manifest: dict[str, Any]
    """The whole manifest of the run."""
    round_s: Seconds
    """How long a round of this run takes."""
    is_repeated: bool = False
    """The first line of a new file of the same program: nothing has started."""


class Restarted(_Event):
    """The program has replaced itself because a part of it was broken; `started` comes next."""

    kind: Literal["restarted"] = "restarted"
    reason: Words
    """What was broken."""
    num_total: Count
    """Restarts of this kind since the user started the node."""


class JoinFailed(_Event):
    """The node has ended with an error before it trained."""

    kind: Literal["join_failed"] = "join_failed"
    cause: Annotated[str, Field(max_length=64)]
    """A name of the cause, the same as in `bt-node stats`."""
    words: Words
    """The message that the user saw."""


class BlockChosen(_Event):
    """The node trains another block from now on, or its first."""

    kind: Literal["block_chosen"] = "block_chosen"
    block: Block
    """Which."""
    before: Block | None
    """The block before it; null for the first."""


class StateChanged(_Event):
    """The node does something else now; training and averaging take turns and are not told."""

    kind: Literal["state_changed"] = "state_changed"
    state: Annotated[str, Field(max_length=32)]
    """As in `bt-node status --json`."""


class Paused(_Event):
    """The node trains no more until it is resumed."""

    kind: Literal["paused"] = "paused"
    reason: Annotated[str, Field(max_length=64)]
    """Code of the reason; empty if there is none."""
    words: Words
    """Why, in plain words."""


class Resumed(_Event):
    """The node trains again."""

    kind: Literal["resumed"] = "resumed"


class Synced(_Event):
    """The node has taken the weights of other replicas."""

    kind: Literal["synced"] = "synced"
    block: Block
    """Of which block."""
    round: Count
    """Rounds behind these weights."""
    size_bytes: Count
    """What came over the network for it."""
    source: Words
    """Who gave them."""


class RoundFinished(_Event):
    """A round is over. Totals count from the start of the program."""

    kind: Literal["round_finished"] = "round_finished"
    block: Block
    """Of this block."""
    round: Count
    """Rounds that the weights have now been through."""
    outcome: Literal["averaged", "alone", "refused"]
    """Averaged with others, nobody else there, or an average that was refused or broke off."""
    words: Words
    """How it ended, in plain words."""
    loss: Loss | None
    """Mean training loss of the round in nats per byte; null without a good step, or if it is absurd."""
    partners: Count
    """Other replicas in the average."""
    bytes_per_s: Rate
    """Training speed in bytes of text."""
    steps: Count
    """Optimizer steps, in total."""
    bytes_trained: Count
    """Bytes of text, in total."""
    bytes_sent: Count
    """To other peers, in total."""
    requests_served: Count
    """Requests of other peers, in total."""


class AverageMade(_Event):
    """The average of a round was adopted."""

    kind: Literal["average_made"] = "average_made"
    round: Count
    """Rounds that the weights have now been through."""
    partners: Count
    """Other replicas in it."""


class AverageRefused(_Event):
    """The average of a round was refused, or broke off; own weights stay."""

    kind: Literal["average_refused"] = "average_refused"
    round: Count
    """Rounds that the weights have now been through."""
    code: Annotated[str, Field(max_length=64)]
    """The reason code."""
    words: Words
    """Why."""


class FirstContribution(_Event):
    """The first average with other replicas since the start was adopted."""

    kind: Literal["first_contribution"] = "first_contribution"
    after_s: Seconds
    """Time since the start."""


class Saved(_Event):
    """A checkpoint was written."""

    kind: Literal["saved"] = "saved"
    block: Block
    """Of this block."""
    round: Count
    """Rounds behind it."""


class ReasonBegan(_Event):
    """A reason holds why the node is idle, slow, alone or refused; also a warning of any kind."""

    kind: Literal["reason_began"] = "reason_began"
    code: Annotated[str, Field(max_length=64)]
    """One of the reason codes of `bt-node why`."""
    severity: Literal["note", "warning", "error"]
    """How much it matters."""
    words: Words
    """What it was concluded from."""


class ReasonOver(_Event):
    """A reason holds no longer."""

    kind: Literal["reason_over"] = "reason_over"
    code: Annotated[str, Field(max_length=64)]
    """Which."""


class PeerJoined(_Event):
    """A peer is seen that was not there before."""

    kind: Literal["peer_joined"] = "peer_joined"
    peer_id: PeerId
    """Who."""
    block: Block | None
    """Its block; null while it chooses one."""


class PeerMoved(_Event):
    """A peer has chosen a block, or another one."""

    kind: Literal["peer_moved"] = "peer_moved"
    peer_id: PeerId
    """Who."""
    block: Block | None
    """Its block now."""
    before: Block | None
    """Its block before."""


class PeerLeft(_Event):
    """A peer is gone: it has left, or its lease has run out."""

    kind: Literal["peer_left"] = "peer_left"
    peer_id: PeerId
    """Who."""
    block: Block | None
    """The block it held."""


class PeerSeen(_Fields):
    """What one peer says of itself."""

    peer_id: PeerId
    """Who."""
    block: Block | None
    """Its block; null while it chooses one."""
    state: Literal["joining", "training"]
    """What it does."""
    round: Annotated[int, Field(ge=0, lt=2**40)]
    """Rounds that its weights have been through."""
    loss: Loss | None
    """Mean training loss of its round so far, nats per byte."""
    bytes_per_s: Rate
    """Its training speed."""
    partners: Annotated[int, Field(ge=0, le=100_000)]
    """Other replicas in its last average."""
    is_relayed: bool
    """Whether it is reached through another peer only."""
    is_paused: bool = False
    """Whether it serves its block, but does not train it now."""
    copies: Annotated[list[tuple[int, int]], Field(max_length=MAX_SPAN_BLOCKS)] = []
    """Other blocks that it serves, each with the round behind the copy."""


class SwarmSeen(_Event):
    """The swarm as this node sees it.

    Once a round, at most twice a minute; while it has at most 64 peers also when one comes or goes.
    """

    kind: Literal["swarm_seen"] = "swarm_seen"
    num_peers: Count
    """Live peers, those included that are not listed."""
    peers: Annotated[list[PeerSeen], Field(max_length=64)]
    """Each live peer, at most 64."""


class Stopped(_Event):
    """The node has ended in order."""

    kind: Literal["stopped"] = "stopped"
    reason: Words
    """Why, in plain words."""


class LinesLost(_Event):
    """The disk did not take events that happened before this one."""

    kind: Literal["lines_lost"] = "lines_lost"
    num: Count
    """How many."""


Event = (
    Started
    | Restarted
    | JoinFailed
    | BlockChosen
    | StateChanged
    | Paused
    | Resumed
    | Synced
    | RoundFinished
    | AverageMade
    | AverageRefused
    | FirstContribution
    | Saved
    | ReasonBegan
    | ReasonOver
    | PeerJoined
    | PeerMoved
    | PeerLeft
    | SwarmSeen
    | Stopped
    | LinesLost
)

EVENT_CLASSES: tuple[type[_Event], ...] = get_args(Event)
KINDS = frozenset(str(each.model_fields["kind"].default) for each in EVENT_CLASSES)
EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
"""Reads and checks any event."""
MAX_WORDS = 2000


def shortened(text: str) -> str:
    """Words that fit into an event, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_WORDS else f"{line[: MAX_WORDS - 3]}..."
