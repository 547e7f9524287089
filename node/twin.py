"""Another node that uses this node's key, seen by its leases; decisions only.

Both write to one place of the DHT, the later lease in place of the earlier. So a node that reads just
before it renews its own lease finds the other's there, if that was renewed since.
"""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.limits import MAX_CLOCK_SKEW_S, TWIN_GONE_S, TWIN_PERIOD_S
from node.tui.format import format_age


@dataclass(kw_only=True)
class TwinWatch:
    """What is known of another node with this node's key. Times are DHT time."""

    announced_at_s: float | None = None
    """When this node first announced itself; None before that."""
    looked_at_s: float = float("-inf")
    twin: Lease | None = None
    """The other's lease that was seen last; None if there is no other."""

    def announced(self, *, now_s: float) -> None:
        """This node's own lease was just stored."""
        if self.announced_at_s is None:
            self.announced_at_s = self.looked_at_s = now_s

    def is_due(self, *, now_s: float) -> bool:
        """Whether to read the leases before the next renewal."""
        return self.announced_at_s is not None and now_s - self.looked_at_s >= TWIN_PERIOD_S

    def see(self, view: LeaseView, own: Lease, *, now_s: float) -> None:
        """Take note of the leases before a renewal.

        What an earlier life of this node has left is no twin: it was signed before this one began.
        """
        assert self.announced_at_s is not None
        self.looked_at_s = now_s
        since_s = self.announced_at_s + MAX_CLOCK_SKEW_S
        found = next((each for each in view.leases if each.peer_id == own.peer_id), None)
        if found is not None and found.boot_id != own.boot_id and found.issued_at_s > since_s:
            self.twin = found
        elif self.twin is not None and now_s - self.twin.issued_at_s > TWIN_GONE_S:
            self.twin = None

    def words(self, *, now_s: float) -> str:
        """That there is another, and where; empty if there is none."""
        if self.twin is None:
            return ""
        block = "has no block yet" if self.twin.block is None else f"holds block {self.twin.block}"
        where = f" at {self.twin.addresses[0]}" if self.twin.addresses else ""
        seen = format_age(self.twin.issued_at_s, now_s=now_s)
        return f"another node with this key {block}{where}; it renewed its lease {seen}"
