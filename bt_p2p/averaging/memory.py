"""What a replica remembers of the others: suspicion that fades, and whom it refuses for a while.

Each replica judges for itself and believes nobody's word about a third one: an attacker could name
honest replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bt_p2p.protocol.limits import MAX_REMEMBERED_PEERS

REFUSE_AT = 3.0
"""Suspicion at which a peer is refused; below it, a peer counts less in proportion."""
DECAY = 0.9
"""Of suspicion, each round."""
REFUSED_ROUNDS = 20
"""Rounds for which a peer is refused the first time; twice as long each further time."""
_MAX_REFUSED_ROUNDS = 32 * REFUSED_ROUNDS
_PROBATION = REFUSE_AT / 2
"""Suspicion of a peer that is let in again."""
_FORGOTTEN = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Something that a peer did, and how much it says."""

    strength: float
    """`REFUSE_AT` is enough by itself."""
    reason: str
    """In plain words, of the peer: "its weights are not finite"."""
    may_be_drift: bool = False
    """An honest replica that trained apart from ours for some rounds can look like that, too."""


@dataclass(slots=True)
class _Opinion:
    suspicion: float = 0.0
    reason: str = ""
    refused_until: int = 0
    num_refusals: int = 0


class PeerMemory:
    """Suspicion by peer id. Rounds are counted by `next_round`, whatever they are called."""

    def __init__(self) -> None:
        """Start with a good opinion of everybody."""
        self._opinions: dict[str, _Opinion] = {}
        self._round = 0

    def next_round(self) -> None:
        """Let suspicion fade, and let those in again whose time is over."""
        self._round += 1
        for peer_id, opinion in list(self._opinions.items()):
            if opinion.refused_until > self._round:
                continue
            if opinion.refused_until == self._round:
                opinion.suspicion = _PROBATION
                continue
            opinion.suspicion *= DECAY
            if opinion.suspicion < _FORGOTTEN and not opinion.num_refusals:
                del self._opinions[peer_id]

    def note(self, evidence: Mapping[str, Evidence]) -> None:
        """Remember what was seen in this round."""
        for peer_id, seen in evidence.items():
            strength = min(seen.strength, REFUSE_AT)
            if not (math.isfinite(strength) and strength > 0):
                continue
            opinion = self._opinions.setdefault(peer_id, _Opinion())
            opinion.suspicion = min(REFUSE_AT, opinion.suspicion + strength)
            opinion.reason = seen.reason
            if opinion.suspicion >= REFUSE_AT and opinion.refused_until <= self._round:
                rounds = min(_MAX_REFUSED_ROUNDS, REFUSED_ROUNDS * 2**opinion.num_refusals)
                opinion.num_refusals += 1
                opinion.refused_until = self._round + rounds
        self._forget_the_least()

    def _forget_the_least(self) -> None:
        """Strangers are free: whoever brings ever new ids must not fill our memory."""
        surplus = len(self._opinions) - MAX_REMEMBERED_PEERS
        if surplus > 0:
            by_weight = sorted(self._opinions, key=lambda peer: self._opinions[peer].suspicion)
            for peer_id in by_weight[:surplus]:
                del self._opinions[peer_id]

    @property
    def refused(self) -> dict[str, str]:
        """Whom this replica does not average with now, and why."""
        return {
            peer_id: opinion.reason
            for peer_id, opinion in self._opinions.items()
            if opinion.refused_until > self._round
        }

    @property
    def trust(self) -> dict[str, float]:
        """How much a peer's samples count, from 0 (refused) to 1; peers not named count fully."""
        return {
            peer_id: 0.0
            if opinion.refused_until > self._round
            else max(0.0, 1 - opinion.suspicion / REFUSE_AT)
            for peer_id, opinion in self._opinions.items()
        }
