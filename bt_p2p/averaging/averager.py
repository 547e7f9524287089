"""The port through which same-block replicas average their weights.

`bt_p2p.swarm.averager` does it over hivemind, `bt_p2p.testing.averager` in memory; one contract
test runs on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from bt_p2p.averaging.merge import Observation


@dataclass(frozen=True, kw_only=True, slots=True)
class PartnerReport:
    """What a replica says of the weights it brings to a round."""

    round_index: int
    """Rounds of training they have been through before this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Neighbouring elements of the average that one member made."""

    peer_id: str
    num_elements: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAverage:
    """The result of a round in which every member's weights were heard completely."""

    weights: dict[str, Tensor]
    """What the members' shares of the merged weights come to; float32 on the CPU.

    The same bits for all members, unless weights travel compressed.
    """
    partners: Mapping[str, PartnerReport]
    """The other members, by peer id."""
    shares: tuple[Share, ...] = ()
    """Who made what, in the order of the tensors; together all elements."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    """What this replica saw, in the share that it made, of the members it trusts."""


class PendingAverage(Protocol):
    """A round that has begun to look for its members, while local steps go on."""

    def finish(
        self,
        weights: Mapping[str, Tensor],
        *,
        start: Mapping[str, Tensor],
        num_samples: int,
        timeout_s: float,
    ) -> GroupAverage:
        """Bring the weights, wait for the group, and return its average.

        The weights given are not changed. All or nothing: an average in which any part of any
        member is missing is an error. Every member merges a share as `averaging.merge` says.

        Args:
            weights: what this replica brings.
            start: what it began the round with; changes, those of the others too, are counted from it.
            num_samples: how many samples it trained on.
            timeout_s: longest wait.

        Raises:
            GroupNotFormedError: nobody else was there in time.
            RoundFailedError: a member died, sent something malformed, or was late.
        """

    def cancel(self) -> None:
        """Give up the round; the others go on without us."""


class GroupAverager(Protocol):
    """Finds the other replicas of one block and averages with them."""

    def begin(
        self, report: PartnerReport, *, ends_at_s: float, trust: Mapping[str, float] | None = None
    ) -> PendingAverage:
        """Start looking for a group that averages at a moment.

        Args:
            report: what the others are told of our weights.
            ends_at_s: DHT time of the average, the same for all replicas.
            trust: how much samples of peers count, 0 to 1; those not named count fully. Who is at
                0 is neither led nor followed, and ignored when somebody else brings both together.
        """

    def stop(self) -> None:
        """End the averager; idempotent."""
