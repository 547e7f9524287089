"""One replica's gate: which averages come in, and which peers are met again.

Three looks, none of which believes what others say: at the parts that came to our own share, at the
shares that came back, and at the loss of the whole average on private held-out text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from bt_p2p.averaging.memory import REFUSE_AT, Evidence, PeerMemory

ScoreHeldOut = Callable[[Sequence[Mapping[str, Tensor]]], Sequence[Tensor]]
"""Nats per byte of each of some private windows, fresh ones each time, of several weights."""


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

    @property
    def refused(self) -> dict[str, str]:
        """Peers that are not averaged with now, and why."""
        return self._memory.refused

    @property
    def trust(self) -> dict[str, float]:
        """How much samples of peers count, 0 to 1; those not named count fully."""
        return self._memory.trust

    def blame(self, reasons: Mapping[str, str]) -> None:
        """A round failed by the fault of these, beyond doubt; what each did."""
        self._memory.note(
            {
                peer_id: Evidence(strength=REFUSE_AT, reason=reason)
                for peer_id, reason in reasons.items()
            }
        )

    def next_round(self) -> None:
        """A round is over, however it ended."""
        self._memory.next_round()

    def reason_to_refuse(
        self,
        average: GroupAverage,
        own: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        *,
        round_index: int,
    ) -> str:
        """Why an average must not be adopted; empty when it may be. Remembers whose fault it is.

        Args:
            average: the result of the round.
            own: what this replica brought.
            start: what it began the round with.
            round_index: rounds its weights had been through.
        """
        self._memory.note(
            {
                peer_id: evidence
                for peer_id, seen in average.observations.items()
                if (evidence := against_sender(seen)) is not None
            }
        )
        reason = reason_to_refuse(average, own, round_index=round_index)
        if reason:
            return reason
        liars = against_reducers(average, own, start, peer_id=self._peer_id)
        self._memory.note(liars)
        for peer_id, evidence in liars.items():
            return f"replica …{peer_id[-6:]}: {evidence.reason}"
        average_N, own_N, start_N = self._score([average.weights, own, start])
        scores = HeldOutScores(average_N=average_N, own_N=own_N, start_N=start_N)
        excess, standard_error = loss_of_average(scores)
        self._memory.note(against_partners(excess, standard_error, tuple(average.partners)))
        if excess > standard_error:
            worse = float((average_N - own_N).mean())
            return f"the average is {worse:.3f} nats/byte worse than own weights on held-out text"
        return ""
