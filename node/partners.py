"""Which other replicas of the block a search for a group may meet, and which of them are surely alive."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import FRESH_LEASE_S, MAX_ROUND_LAG


@dataclass(frozen=True, kw_only=True, slots=True)
class Partners:
    """How many others there are."""

    num_possible: int
    """Whose leases have not run out."""
    num_expected: int
    """Of these, those that have renewed theirs lately; the rest may have died."""


NOBODY = Partners(num_possible=0, num_expected=0)


def count_partners(
    holders: Iterable[Lease], *, apart_from: Collection[str], round_index: int, read_at_s: float
) -> Partners:
    """Live replicas that are close enough to average with.

    A killed or frozen replica keeps its lease for up to 30 s. It is looked for as long, since it may be
    back, but nobody counts on it.

    Args:
        holders: leases of the block.
        apart_from: peer ids that are not met, such as one's own.
        round_index: rounds that own weights have been through.
        read_at_s: DHT time at which the leases were read.
    """
    possible = [
        lease
        for lease in holders
        if lease.peer_id not in apart_from
        and lease.state == "training"
        and not lease.is_paused
        and abs(lease.round_index - round_index) <= MAX_ROUND_LAG
    ]
    return Partners(
        num_possible=len(possible),
        num_expected=sum(lease.age_s(read_at_s) <= FRESH_LEASE_S for lease in possible),
    )
