"""Which replicas are looked for, and which are counted on."""

from __future__ import annotations

from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import FRESH_LEASE_S, LEASE_RENEW_S, LEASE_TTL_S, MAX_ROUND_LAG
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from node.partners import NOBODY, Partners, count_partners

NOW_S = 1_000_000.0


def lease(number: int, *, age_s: float = 1.0, **changes: object) -> Lease:
    """One of a replica of block 0."""
    made = tiny_lease(tiny_manifest(), tiny_identity(number), round_index=7)
    times = {"issued_at_s": NOW_S - age_s, "expires_at_s": NOW_S - age_s + LEASE_TTL_S}
    return made.model_copy(update={**times, **changes})


def count(*holders: Lease, apart_from: frozenset[str] = frozenset()) -> Partners:
    """As a replica that has been through seven rounds."""
    return count_partners(holders, apart_from=apart_from, round_index=7, read_at_s=NOW_S)


def test_a_replica_that_renews_its_lease_is_expected() -> None:
    """Live ones do so right before others look."""
    assert Partners(num_possible=2, num_expected=2) == count(lease(1), lease(2))


def test_a_dead_replicas_lease_makes_nobody_wait_for_it_twice() -> None:
    """It lives on for half a minute; a round of 10 s later it is looked for, but not counted on."""
    assert FRESH_LEASE_S < LEASE_RENEW_S
    dead = lease(2, age_s=LEASE_RENEW_S)
    assert Partners(num_possible=2, num_expected=1) == count(lease(1), dead)
    assert Partners(num_possible=1, num_expected=0) == count(dead)


def test_who_cannot_be_met_is_not_looked_for() -> None:
    """Oneself, those refused, those that do not train now, those too many rounds away."""
    refused = lease(1)
    assert NOBODY == count(refused, apart_from=frozenset({refused.peer_id}))
    assert NOBODY == count(lease(1, state="joining"))
    assert NOBODY == count(lease(1, is_paused=True))
    assert NOBODY == count(lease(1, round_index=7 + MAX_ROUND_LAG + 1))
