"""What can go wrong between a caller and a holder, one fault at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

NEVER_S = 1e9
"""As a delay: no answer at all."""

FaultKind = Literal["drop", "refuse", "delay", "wrong_shape", "not_finite", "truncate"]
"""
- `drop`: the connection breaks before an answer
- `refuse`: the holder answers with an error
- `delay`: the answer comes late, or never
- `wrong_shape`: the answer is not of the shape that was asked for
- `not_finite`: the answer is NaN; weights do not match their hash
- `truncate`: the connection ends within the answer
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    kind: FaultKind
    delay_s: float = NEVER_S
    """For `delay`: seconds before the answer."""


class FaultPlan:
    """Which peers fail, how, and how often. Empty at first: everybody is well."""

    def __init__(self) -> None:
        """Start without faults."""
        self._always: dict[str, Fault] = {}
        self._next: dict[str, deque[Fault]] = {}

    def always(self, peer_id: str, kind: FaultKind, *, delay_s: float = NEVER_S) -> None:
        """Let every later call to a peer fail, until `heal`."""
        self._always[peer_id] = Fault(kind=kind, delay_s=delay_s)

    def once(self, peer_id: str, kind: FaultKind, *, delay_s: float = NEVER_S) -> None:
        """Let one more call to a peer fail; repeated calls queue up."""
        self._next.setdefault(peer_id, deque()).append(Fault(kind=kind, delay_s=delay_s))

    def heal(self, peer_id: str) -> None:
        """Forget all faults of a peer."""
        self._always.pop(peer_id, None)
        self._next.pop(peer_id, None)

    def lasting(self, peer_id: str) -> Fault | None:
        """The fault of every call, if there is one."""
        return self._always.get(peer_id)

    def take(self, peer_id: str) -> Fault | None:
        """The fault of the call that is made now; None when it goes well."""
        queue = self._next.get(peer_id)
        if queue:
            return queue.popleft()
        return self._always.get(peer_id)
