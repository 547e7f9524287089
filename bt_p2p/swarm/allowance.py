"""How often strangers may ask for something that costs us more than an answer."""

from __future__ import annotations

import collections

from bt_p2p.protocol.limits import CHECKUP_BURST, CHECKUP_REFILL_S

_MAX_KNOWN_HOSTS = 1024


class Allowance:
    """How often the peers of one host may ask: a burst, and then one in some time."""

    def __init__(self, burst: int = CHECKUP_BURST, refill_s: float = CHECKUP_REFILL_S) -> None:
        """Start with everybody's allowance whole."""
        self._burst = burst
        self._refill_s = refill_s
        self._spent: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()

    def take(self, host: str, *, now_s: float) -> bool:
        """Spend one; False if there is none left."""
        spent, at_s = self._spent.pop(host, (0.0, now_s))
        spent = max(0.0, spent - (now_s - at_s) / self._refill_s)
        is_allowed = spent + 1 <= self._burst
        self._spent[host] = (spent + 1 if is_allowed else spent, now_s)
        while len(self._spent) > _MAX_KNOWN_HOSTS:
            self._spent.popitem(last=False)
        return is_allowed
