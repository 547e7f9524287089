"""Snapshots are made when asked for, and kept for those who fetch them."""

from __future__ import annotations

import pytest

from bt_p2p.chain.snapshot_store import SnapshotStore
from bt_p2p.chain.weights_offer import WeightsOffer
from bt_p2p.errors import BusyError, WireFormatError
from bt_p2p.protocol.limits import (
    DOWNLOAD_IDLE_S,
    MAX_DOWNLOADS,
    MAX_OLD_SNAPSHOTS,
    SNAPSHOT_IDLE_S,
)
from bt_p2p.testing.clock import ManualClock

ME = "me"


def no_encoding() -> bytes:
    """For a round whose snapshot is there already."""
    raise AssertionError("the snapshot is made twice")


class Store:
    """A store, and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = SnapshotStore(self.clock)

    def begin_round(self, round_index: int) -> WeightsOffer:
        """New weights, of which somebody asks for a snapshot."""
        self.store.replace()
        return self.store.offers(round_index, lambda: b"round %d" % round_index)[0]

    def rounds(self) -> list[int]:
        """Which are offered, once one of now is there."""
        return [offer.round_index for offer in self.store.offers(-1, no_encoding)]


def test_a_snapshot_is_made_once_and_its_chunks_are_its_bytes() -> None:
    """However many ask."""
    store = Store()
    offer = store.begin_round(7)
    assert (offer,) == store.store.offers(7, no_encoding)
    assert b"round 7" == store.store.chunk(offer.offer_id, 0, asker=ME)


def test_the_last_rounds_stay_but_no_more_than_that() -> None:
    """Those fetched last are kept, not those of the latest rounds."""
    store = Store()
    fetched = store.begin_round(0)
    for round_index in range(1, 6):
        store.clock.advance(1)
        store.begin_round(round_index)
        store.clock.advance(1)
        store.store.chunk(fetched.offer_id, 0, asker=ME)
    assert [5, 4, 0] == store.rounds()
    assert 1 + MAX_OLD_SNAPSHOTS == 3


def test_an_old_snapshot_that_nobody_fetches_goes() -> None:
    """With the next round."""
    store = Store()
    old = store.begin_round(0)
    store.clock.advance(SNAPSHOT_IDLE_S + 1)
    store.begin_round(1)
    assert [1] == store.rounds()
    with pytest.raises(WireFormatError, match="no longer kept"):
        store.store.chunk(old.offer_id, 0, asker=ME)


def test_of_a_large_block_only_one_old_snapshot_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else serving would take several times the memory of training."""
    monkeypatch.setattr("bt_p2p.chain.snapshot_store.MAX_OLD_SNAPSHOTS_SIZE_BYTES", 10)
    store = Store()
    for round_index in range(3):
        store.begin_round(round_index)
        store.clock.advance(1)
    assert [2, 1] == store.rounds()


def test_only_so_many_peers_download_at_once() -> None:
    """Those who do go on; another one gets in when one has ended."""
    store = Store()
    offer = store.begin_round(0)
    for index in range(MAX_DOWNLOADS):
        store.store.chunk(offer.offer_id, 0, asker=f"peer {index}")
    with pytest.raises(BusyError, match=f"busy: {MAX_DOWNLOADS} peers download"):
        store.store.chunk(offer.offer_id, 0, asker=ME)
    store.clock.advance(DOWNLOAD_IDLE_S / 2)
    for index in range(1, MAX_DOWNLOADS):
        store.store.chunk(offer.offer_id, 0, asker=f"peer {index}")
    store.clock.advance(DOWNLOAD_IDLE_S / 2 + 1)
    store.store.chunk(offer.offer_id, 0, asker=ME)
    with pytest.raises(BusyError):
        store.store.check_has_room("peer 0")
