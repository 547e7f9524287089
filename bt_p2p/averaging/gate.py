"""One replica's gate: which averages come in, and which peers are met again.

Three looks, none of which believes what others say: at the parts that came to our own share, at the
shares that came back, and at the loss of the whole average on private held-out text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from bt_p2p.averaging.admission import reason_to_refuse
from bt_p2p.averaging.averager import GroupAverage
from bt_p2p.averaging.evidence import (
    HeldOutScores,
    against_partners,
    against_reducers,
    against_sender,
    loss_of_average,
)
from bt_p2p.averaging.memory import REFUSE_AT, REFUSED_ROUNDS, Evidence, PeerMemory
from bt_p2p.protocol.limits import MAX_ROUND_LAG

ScoreHeldOut = Callable[[Sequence[Mapping[str, Tensor]]], Sequence[Tensor]]
"""Nats per byte of each of some private windows, fresh ones each time, of several weights."""

_ALIKE = 2.0
"""Standard errors by which weights may differ in loss and still be alike."""


class Gate:
    """Decides for one replica, and remembers."""

    def __init__(self, peer_id: str, score: ScoreHeldOut) -> None:
        """Trust everybody at first.

        Args:
            peer_id: of this replica.
            score: on held-out text that no other replica can guess.
        """
        self._peer_id = peer_id
        self._score = score
        self._memory = PeerMemory()
        self._round = 0
        self._partners: frozenset[str] = frozenset()
        """In the average that came in last, if there was no round alone since."""
        self._shared: dict[str, int] = {}
        """Peers by the round of the last average with them that came in."""
        self._late: frozenset[str] = frozenset()
        """Peers for which this round failed."""
        self._left_out: frozenset[str] = frozenset()
        """Those of the last round."""
        self._excused: dict[str, int] = {}
        """Peers by the round in which nothing was held against them, since we had drifted apart."""

    @property
    def refused(self) -> dict[str, str]:
        """Peers that are not averaged with now, and why."""
        return self._memory.refused

    @property
    def left_out(self) -> frozenset[str]:
        """Peers that are not averaged with in this round, since they were late in the last one."""
        return self._left_out

    @property
    def trust(self) -> dict[str, float]:
        """How much samples of peers count, 0 to 1; those not named count fully."""
        return self._memory.trust | dict.fromkeys(self._left_out, 0.0)

    def blame(self, reasons: Mapping[str, str]) -> None:
        """A round failed by the fault of these, beyond doubt; what each did."""
        self._memory.note(
            {
                peer_id: Evidence(strength=REFUSE_AT, reason=reason)
                for peer_id, reason in reasons.items()
            }
        )

    def leave_out(self, late: Collection[str]) -> None:
        """A round failed since these were late: the next one does without them.

        Whatever slowed them down may last, and would spoil another average of all.
        """
        self._late = frozenset(late)

    def end_round(self, *, is_alone: bool) -> None:
        """A round is over.

        Args:
            is_alone: there was no group, so that the others did not have such a round.
        """
        self._round += 1
        self._memory.next_round()
        if is_alone:
            self._partners = frozenset()
        self._left_out, self._late = self._late, frozenset()
        for rounds, kept in ((self._shared, MAX_ROUND_LAG), (self._excused, REFUSED_ROUNDS)):
            for peer_id in [peer for peer, seen in rounds.items() if self._round - seen > kept]:
                del rounds[peer_id]

    def drifted(self, partners: Collection[str]) -> frozenset[str]:
        """Those of the partners with whom no average came in lately, so that they began elsewhere.

        Replicas that trained apart, by a fault of the network or of a machine, look like attackers: their
        average is worse than either. That is held against nobody the first time.
        """
        return frozenset(partners) - self._shared.keys() - self._excused.keys()

    def should_follow(
        self, weights: Mapping[str, Tensor], own: Mapping[str, Tensor], *, peer_id: str
    ) -> bool:
        """Whether to go on from the weights of a replica that trained apart from ours.

        If they are surely better on held-out text; if neither is, the one with the lower peer id is
        followed, so that of two that are alike exactly one gives way.

        Args:
            weights: of the other replica.
            own: of this one.
            peer_id: of the other replica.
        """
        their_N, own_N = self._score([weights, own])
        if not bool(torch.isfinite(their_N).all()):
            return False
        gain_N = (own_N - their_N).double()
        gain, standard_error = float(gain_N.mean()), float(gain_N.std()) / math.sqrt(len(gain_N))
        if peer_id < self._peer_id:
            return gain >= -_ALIKE * standard_error
        return gain > _ALIKE * standard_error

    def reason_to_refuse(
        self,
        average: GroupAverage,
        own: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        *,
        round_index: int,
    ) -> str:
        """Why an average must not be adopted; empty when it may be. Remembers whose fault it is.

        Nothing that may be drift is held against partners that have `drifted`.

        Args:
            average: the result of the round.
            own: what this replica brought.
            start: what it began the round with.
            round_index: rounds its weights had been through.
        """
        drifted = self.drifted(average.partners)
        reason = self._look(average, own, start, round_index=round_index, excused=drifted)
        mark = self._excused if reason else self._shared
        mark |= dict.fromkeys(drifted if reason else average.partners, self._round)
        if not reason:
            self._partners = frozenset(average.partners)
        return reason

    def _look(
        self,
        average: GroupAverage,
        own: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        *,
        round_index: int,
        excused: Collection[str],
    ) -> str:
        def note(found: Mapping[str, Evidence]) -> None:
            self._memory.note(
                {
                    peer: evidence
                    for peer, evidence in found.items()
                    if not (evidence.may_be_drift and peer in excused)
                }
            )

        note(
            {
                peer_id: evidence
                for peer_id, seen in average.observations.items()
                if (evidence := against_sender(seen, was_with_us=peer_id in self._partners))
                is not None
            }
        )
        reason = reason_to_refuse(average, own, round_index=round_index)
        if reason:
            return reason
        liars = against_reducers(average, own, start, peer_id=self._peer_id)
        note(liars)
        for peer_id, evidence in liars.items():
            return f"replica …{peer_id[-6:]}: {evidence.reason}"
        average_N, own_N, start_N = self._score([average.weights, own, start])
        scores = HeldOutScores(average_N=average_N, own_N=own_N, start_N=start_N)
        excess, standard_error = loss_of_average(scores)
        note(against_partners(excess, standard_error, average.partners, average.observations))
        if excess > standard_error:
            worse = float((average_N - own_N).mean())
            return f"the average is {worse:.3f} nats/byte worse than own weights on held-out text"
        return ""
