"""node.swarm_news: who came and went is told at once, the whole swarm now and then."""

from __future__ import annotations

from pathlib import Path

from bt_p2p.protocol.lease import LeaseView
from bt_p2p.protocol.overview import make_overview
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from node.events.event import Event
from node.record import NodeRecord
from node.snapshot import NodeSnapshot
from node.swarm_news import SwarmNews

MANIFEST = tiny_manifest()
ME, OTHER = (tiny_lease(MANIFEST, tiny_identity(index)) for index in range(2))


def test_comings_and_goings_are_told_with_the_swarm_and_quiet_views_seldom(tmp_path: Path) -> None:
    """What is told of the node itself is told elsewhere."""
    told: list[Event] = []
    clock = ManualClock()
    snapshot = NodeSnapshot(pid=1, peer_id=ME.peer_id, run_id=MANIFEST.run_id)
    record = NodeRecord(tmp_path, snapshot, clock, tell=told.append)
    news = SwarmNews(record, clock, mine=ME.peer_id, round_s=60.0)

    def see(*leases) -> list[str]:
        told.clear()
        view = LeaseView(leases=leases, num_invalid=0)
        news.see(make_overview(MANIFEST, view, now_s=clock.now_s()))
        return [event.kind for event in told]

    first, quiet = see(ME), see(ME)
    assert (["swarm_seen"], []) == (first, quiet)
    assert ["peer_joined", "swarm_seen"] == see(ME, OTHER)
    assert [] == see(ME, OTHER)
    clock.advance(61.0)
    assert ["swarm_seen"] == see(ME, OTHER)
    assert ["peer_left", "swarm_seen"] == see(ME)
