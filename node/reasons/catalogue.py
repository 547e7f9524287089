"""What each code means, how much it matters, and what to do next: the only place that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from node.reasons.code import ReasonCode, Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What is said of one code, whatever the evidence."""

    severity: Severity
    title: str
    """A few words."""
    meaning: str
    """What is the case, and what follows from it."""
    next_action: str
    """What the owner of the node does."""


def _note(title: str, meaning: str, next_action: str) -> Entry:
    return Entry(severity=Severity.NOTE, title=title, meaning=meaning, next_action=next_action)


def _warning(title: str, meaning: str, next_action: str) -> Entry:
    return Entry(severity=Severity.WARNING, title=title, meaning=meaning, next_action=next_action)


def _error(title: str, meaning: str, next_action: str) -> Entry:
    return Entry(severity=Severity.ERROR, title=title, meaning=meaning, next_action=next_action)


CATALOGUE: Mapping[ReasonCode, Entry] = MappingProxyType(
    {
        ReasonCode.ALONE_NO_PARTNER: _note(
            "no other replica of the block",
            "The last round had nobody to average with. The node trains on its own weights and "
            "serves them; nothing is lost.",
            "nothing; others join with the command that the node printed at its start",
        ),
        ReasonCode.AVERAGE_BROKEN: _note(
            "an average broke off",
            "A member of the group left, lost its connection or sent a broken part in the middle "
            "of the average. All members keep their own weights.",
            "nothing if it is rare; if one peer is named each time, tell its owner",
        ),
        ReasonCode.AVERAGE_LATE: _note(
            "an average took too long",
            "A member or a link was too slow, so the average was given up at its deadline. All "
            "members keep their own weights.",
            'nothing if it is rare; else found a run with longer rounds or compression = "float16"',
        ),
        ReasonCode.AVERAGE_REFUSED: _note(
            "an average was refused",
            "The average was malformed, too far away in rounds, or worse than the node's own "
            "weights on text that only this node knows. The node keeps its own weights.",
            "nothing if it is rare; if it is so with every partner, check that this node's text "
            "is that of the run",
        ),
        ReasonCode.BOOTSTRAP_UNREACHABLE: _warning(
            "no known peer answered at the start",
            "None of the peers that this node has met before answers. It goes on alone, and dials "
            "them again and again.",
            "join again with --initial-peers and the address of a peer that runs now",
        ),
        ReasonCode.CHOOSING_BLOCK: _note(
            "choosing a block",
            "The node has announced itself and waits a moment for others who start now, so that "
            "they do not all take the same block.",
            "wait; it takes a few seconds",
        ),
        ReasonCode.CLOCK_OFF: _warning(
            "the clock of this computer is wrong",
            "Rounds end by the clock. With a wrong one the node would come to averages at the "
            "wrong moment, so it trains alone until the clock is right.",
            "turn on time synchronisation, for example: timedatectl set-ntp true",
        ),
        ReasonCode.COPY_NOT_FRESH: _warning(
            "a served copy is old or missing",
            "The node serves copies of other blocks of its span, and could not fetch new weights "
            "for one of them. It goes on with the old copy, or without one.",
            "nothing if it passes; else check that the holders of that block can be dialled",
        ),
        ReasonCode.DISK_FULL: _warning(
            "the checkpoint cannot be written",
            "The disk is full or not writable. The node goes on and the last good checkpoint "
            "stays, but what was learned since then is lost if the machine stops.",
            "free space, or restart with --state-dir on another disk",
        ),
        ReasonCode.DISK_LOW: _warning(
            "little room for checkpoints",
            "Fewer than two more checkpoints fit on the disk.",
            "free space, or restart with --state-dir on another disk",
        ),
        ReasonCode.DISK_UNREADABLE: _warning(
            "the state folder cannot be looked at",
            "The size of the state folder or the room on its disk could not be read.",
            "check that the disk is mounted and that the folder belongs to you",
        ),
        ReasonCode.FIRST_ROUND: _note(
            "no round has ended yet",
            "The node trains its first round; what comes of it shows at the end of the round.",
            "wait for the end of the round",
        ),
        ReasonCode.ISOLATED: _warning(
            "no peer is connected",
            "The node is offline, or all peers that it knows are gone. It trains on alone, dials "
            "them again and again, and takes part again when one answers.",
            "check that this computer is online; if it is, join again with --initial-peers",
        ),
        ReasonCode.LEAVING: _note(
            "leaving the swarm",
            "The node was asked to stop: it saves its weights and withdraws its lease.",
            "wait; it takes a few seconds",
        ),
        ReasonCode.LINK_TOO_SLOW: _warning(
            "the link is too slow for the rounds",
            "Downloading the weights takes longer than a round, so the node is behind again when "
            "it has them. It trains alone between tries.",
            "use a faster link, or join a run with longer rounds or smaller blocks",
        ),
        ReasonCode.MEMORY_OVER_CAP: _warning(
            "more memory than its owner allows",
            "The node uses more memory than the cap that its owner has set.",
            "raise the cap, serve fewer blocks with --span, or join a run with smaller blocks",
        ),
        ReasonCode.NO_AVERAGE_LATELY: _warning(
            "several rounds without an average",
            "There are or were other replicas, but the last rounds all ended without an average. "
            "What this node learns does not reach the others.",
            "look at the other reasons; check the clocks, and that both sides can be dialled",
        ),
        ReasonCode.NOT_REACHABLE: _warning(
            "others cannot dial this node",
            "A firewall or a router keeps others out, and no relay helps. The node gives less to "
            "the swarm: it can dial others, but not be asked.",
            "open and forward the port, and tell the public address with --announce",
        ),
        ReasonCode.OUT_OF_MEMORY_BATCH_HALVED: _warning(
            "memory is short",
            "A whole batch does not fit into memory, so each step is done in parts. Steps take "
            "longer and learn the same.",
            "nothing, or close other programs and start the node again",
        ),
        ReasonCode.OWN_WEIGHTS_NOT_FINITE: _warning(
            "own weights are not numbers any more",
            "The weights of this node are not finite, so they were not sent to others.",
            "if it repeats: check the memory and the GPU; found runs with a lower learning rate",
        ),
        ReasonCode.PARTNER_LATE: _note(
            "another replica was not there in time",
            "There is another replica of the block, but no group formed at the end of the round: "
            "its clock differs, it cannot be dialled, or its steps are long.",
            "nothing if it is rare; else check the clocks of both machines, and that both ports "
            "can be dialled",
        ),
        ReasonCode.PARTNER_REFUSED: _warning(
            "a peer is not averaged with",
            "A peer did harm to averages, as the evidence says. This node does not average with "
            "it for 20 rounds, then longer each time.",
            "nothing; if the peer is honest, its owner checks its text, memory and GPU",
        ),
        ReasonCode.PAUSED: _note(
            "paused by its owner's rules",
            "The node neither trains nor averages now; it serves its block.",
            "nothing; it goes on when the rule allows it, or with bt-node resume",
        ),
        ReasonCode.REBUILDING: _note(
            "starting itself again",
            "A part of the node broke. It saves its weights and starts itself again, with the "
            "same identity and port.",
            "wait; it takes up to a minute",
        ),
        ReasonCode.REBUILT: _warning(
            "it started itself again",
            "A part of the node broke since it was started by hand, and it has cured that by "
            "starting itself again.",
            "nothing if it is rare; else look at the memory of the machine",
        ),
        ReasonCode.RELAYED_ONLY: _note(
            "reached through another peer only",
            "Others cannot dial this node, so peers that can be dialled pass its traffic on. It "
            "takes part in everything, more slowly.",
            "nothing; to be dialled: open and forward the port, and use --announce",
        ),
        ReasonCode.SAME_KEY_ELSEWHERE: _error(
            "the same key runs on another machine",
            "Another node uses this node's key, so both have one peer id. They overwrite each "
            "other's lease, and others cannot tell them apart.",
            "stop one of the two, and start it with a key of its own: --identity or another "
            "--state-dir",
        ),
        ReasonCode.SILENT: _error(
            "the node reports nothing",
            "The process is there, but has not reported for a while: it is stopped, or the "
            "machine is overloaded.",
            "if it stays silent, stop it and start it again",
        ),
        ReasonCode.STALLED_NO_STEP: _error(
            "training does not move",
            "The node should train, but has made no step for many times its usual time.",
            "check the text it reads, the GPU and the load of the machine; if it stays so, stop "
            "it and start it again",
        ),
        ReasonCode.STARTING: _note(
            "starting",
            "The node loads its text and enters the swarm.",
            "wait; it takes some seconds",
        ),
        ReasonCode.SWARM_NO_ANSWER: _warning(
            "the swarm does not answer",
            "Reading or renewing the node's lease failed: the machine is overloaded, or offline. "
            "The node goes on and tries again.",
            "check that this computer is online; on a busy one give the node fewer --threads",
        ),
        ReasonCode.TOKEN_EXPIRED: _error(
            "the run token has expired",
            "The run is closed, and the token that let this node in is no longer valid. Others "
            "ignore its lease and do not average with it.",
            "ask the owner of the run for a new token, and start the node again with --run-token",
        ),
        ReasonCode.TOKEN_EXPIRES_SOON: _warning(
            "the run token expires soon",
            "The run is closed. When the token expires, others ignore this node.",
            "ask the owner of the run for a new token, and start the node again with --run-token",
        ),
        ReasonCode.TRAINING_DIVERGED: _warning(
            "local training broke",
            "Several local steps in a row were not finite. The node went back to the weights of "
            "the last round; after the fourth time it ends.",
            "if it repeats: check the memory and the GPU; found runs with a lower learning rate",
        ),
        ReasonCode.UPSTREAM_NOT_FRESH: _warning(
            "a copy that training needs is old or missing",
            "This run's objective trains on copies of the blocks before, and one could not be "
            "fetched. Training goes on with the old copy, or without one.",
            "nothing if it passes; else check that the holders of that block can be dialled",
        ),
        ReasonCode.WAITING_FOR_WEIGHTS: _note(
            "fetching the weights of its block",
            "Others are ahead, so the node downloads their weights before it trains.",
            "wait for the end of the download",
        ),
        ReasonCode.WEIGHTS_NOT_GIVEN: _warning(
            "nobody gives this node newer weights",
            "Other replicas are ahead, but none gave its weights, try after try. The node trains "
            "alone and tries again after a round.",
            "check that the replicas named can be dialled; else wait, or ask their owners",
        ),
    }
)
