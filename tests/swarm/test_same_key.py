"""Two nodes with one key in a real DHT: each finds the other's lease in the place of its own."""

from __future__ import annotations

import pytest

from bt_p2p.clock import SystemClock
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import LEASE_TTL_S, MAX_CLOCK_SKEW_S, TWIN_PERIOD_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from node.twin import TwinWatch

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(120)]

MANIFEST = tiny_manifest("same-key")


def lease(key: PeerIdentity, boot_id: str, block: int, issued_at_s: float) -> Lease:
    """Of one of two nodes with one key."""
    made = tiny_lease(MANIFEST, key, block, now_s=issued_at_s)
    return made.model_copy(update={"boot_id": boot_id, "expires_at_s": issued_at_s + LEASE_TTL_S})


@pytest.mark.parametrize("other_block", [0, 1])
def test_a_copied_key_is_seen_in_the_dht(local_peers, other_block: int) -> None:
    """Also where the two train different blocks, so that nothing is overwritten."""
    from bt_p2p.swarm.directory import HivemindDirectory

    key = tiny_identity(7 + other_block)
    here, there = (HivemindDirectory(peer.swarm.dht, key) for peer in local_peers[:2])
    now_s = SystemClock().now_s()
    began_s = now_s - TWIN_PERIOD_S - MAX_CLOCK_SKEW_S
    own = lease(key, "here", 0, now_s - 2)
    here.announce(own)
    watch = TwinWatch()
    watch.announced(now_s=began_s)
    assert watch.is_due(now_s=now_s)
    watch.see(here.read(MANIFEST), own, now_s=now_s)
    assert watch.twin is None

    there.announce(lease(key, "there", other_block, now_s - 1))
    watch.see(here.read(MANIFEST), own, now_s=now_s)

    assert watch.twin is not None
    assert ("there", other_block) == (watch.twin.boot_id, watch.twin.block)
