"""bt_p2p.protocol.overview: the swarm from leases alone."""

from __future__ import annotations

from bt_p2p.protocol.lease import LeaseView
from bt_p2p.protocol.overview import make_overview
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest, tiny_overview

MANIFEST = tiny_manifest()
PEERS = [tiny_identity(index) for index in range(4)]


def test_leases_are_sorted_into_blocks() -> None:
    """Holders newest round first; peers that choose stay apart; empty blocks are named."""
    old = tiny_lease(MANIFEST, PEERS[0], 1, round_index=3)
    new = tiny_lease(MANIFEST, PEERS[1], 1, round_index=5)
    first = tiny_lease(MANIFEST, PEERS[2], 0)
    chooser = tiny_lease(MANIFEST, PEERS[3], None)

    overview = tiny_overview(MANIFEST, [old, new, first, chooser])

    assert [(first,), (new, old), ()] == [block.holders for block in overview.blocks]
    assert [0, 1, 2] == [block.index for block in overview.blocks]
    assert ((chooser,), 4, (2,)) == (overview.joining, overview.num_peers, overview.uncovered)
    assert [0, 5, None] == [block.round_index for block in overview.blocks]


def test_holders_of_one_round_are_in_order_of_their_ids() -> None:
    """All readers show the same list."""
    leases = [tiny_lease(MANIFEST, peer, 0) for peer in PEERS]
    expected = sorted(peer.peer_id for peer in PEERS)
    holders = tiny_overview(MANIFEST, leases[::-1]).blocks[0].holders
    assert expected == [lease.peer_id for lease in holders]


def test_losses_are_averaged_over_those_that_report() -> None:
    """A replica that has not trained yet says nothing; speeds add up."""
    update = [{"loss": 2.0, "bytes_per_s": 10.0}, {"loss": 3.0, "bytes_per_s": 5.0}, {}]
    leases = [
        tiny_lease(MANIFEST, peer, 0).model_copy(update=fields)
        for peer, fields in zip(PEERS, update, strict=False)
    ]
    overview = tiny_overview(MANIFEST, leases)
    assert (2.5, 15.0) == (overview.blocks[0].loss, overview.blocks[0].bytes_per_s)
    assert (None, 0) == (overview.blocks[1].loss, overview.blocks[1].bytes_per_s)


def test_invalid_records_and_the_moment_are_kept() -> None:
    """`status` shows both."""
    view = LeaseView(leases=(), num_invalid=7)
    overview = make_overview(MANIFEST, view, now_s=START_S)
    assert (7, START_S) == (overview.num_invalid_records, overview.taken_at_s)
    assert (0, (0, 1, 2)) == (overview.num_peers, overview.uncovered)
