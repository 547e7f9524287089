"""When a node without neighbours dials whom, and when it is called isolated; decisions only."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from bt_p2p.protocol.limits import ISOLATED_AFTER_S, MAX_REDIAL_S, MIN_REDIAL_S, ROUTINE_REDIAL_S


def redial_s(num_tries: int, chance: random.Random) -> float:
    """How long to wait after a number of dials in vain: twice as long each time, up to a minute."""
    longest_s = min(MAX_REDIAL_S, MIN_REDIAL_S * 2.0 ** min(num_tries, 32))
    return longest_s * chance.uniform(0.5, 1.0)


@dataclass(kw_only=True)
class Isolation:
    """What is known of the connections of a node. Times are monotonic seconds."""

    chance: random.Random = field(default_factory=random.Random)
    alone_since_s: float | None = None
    """When the last neighbour was seen to be gone; None while there is one."""
    is_told: bool = False
    """The user has been told that the node is isolated."""
    num_tries: int = 0
    """Dials in vain since then."""
    dial_at_s: float = 0.0

    def see(self, *, num_neighbours: int, num_known: int, now_s: float) -> None:
        """Take note of how many peers the node is connected to, and how many it could dial."""
        if num_neighbours or not num_known:  # who knows nobody is a first node, not a lost one
            if self.alone_since_s is not None:
                self.dial_at_s = now_s
            self.alone_since_s = None
            self.num_tries = 0
        elif self.alone_since_s is None:
            self.alone_since_s = self.dial_at_s = now_s

    def is_isolated(self, now_s: float) -> bool:
        """Whether there has been no neighbour for so long that the user should know."""
        return self.alone_since_s is not None and now_s - self.alone_since_s >= ISOLATED_AFTER_S

    def is_due(self, now_s: float) -> bool:
        """Whether to dial known peers now."""
        return now_s >= self.dial_at_s

    def dialled(self, *, now_s: float) -> None:
        """Known peers have just been dialled."""
        if self.alone_since_s is None:
            # others may have been cut off together with us: two halves meet again in this way
            self.dial_at_s = now_s + ROUTINE_REDIAL_S * self.chance.uniform(0.5, 1.0)
        else:
            self.dial_at_s = now_s + redial_s(self.num_tries, self.chance)
            self.num_tries += 1
