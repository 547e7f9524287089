"""bt_p2p.chain.cache_store: what a holder keeps, and what it gives up."""

from __future__ import annotations

import contextlib

import pytest

from bt_p2p.chain.cache_store import CacheStore
from bt_p2p.errors import CacheLostError
from bt_p2p.model.kv_cache import cache_size_bytes
from bt_p2p.testing.tiny import TINY_MODEL

ONE = cache_size_bytes(TINY_MODEL, 1)
ME = "me"


def store_of(num_caches: int, *, for_each: int | None = None) -> CacheStore:
    """Room for so many sequences, and for so many of one client."""
    return CacheStore(
        TINY_MODEL,
        max_size_bytes=num_caches * ONE,
        max_asker_size_bytes=(for_each or num_caches) * ONE,
    )


def kept(store: CacheStore, asker: str, names: list[bytes]) -> list[bytes]:
    """Those of a client's caches that are still there, the one unused for longest first."""
    found = []
    for name in names:
        with contextlib.suppress(CacheLostError):
            store.resume(asker, name, 1, past=0)
            found.append(name)
    return found


def test_the_one_unused_for_longest_goes_first():
    """Memory stays within its bound; a resumed cache counts as used."""
    store = store_of(2)
    for name in (b"a", b"b"):
        cache = store.open(ME, name, 1)
        cache.num_tokens = 5
    store.resume(ME, b"a", 1, past=5)
    store.open(ME, b"c", 1)
    assert 2 * ONE == store.size_bytes
    assert 5 == store.resume(ME, b"a", 1, past=5).num_tokens
    with pytest.raises(CacheLostError, match="your first 5 tokens"):
        store.resume(ME, b"b", 1, past=5)


def test_opening_again_begins_anew():
    """The old one of that name is replaced, and takes no memory twice."""
    store = store_of(2)
    store.open(ME, b"a", 1).num_tokens = 5
    assert 0 == store.open(ME, b"a", 1).num_tokens
    assert ONE == store.size_bytes


def test_resume_cuts_to_what_the_client_keeps():
    """Fewer tokens than seen are fine, more are lost."""
    store = store_of(2)
    store.open(ME, b"a", 1).num_tokens = 5
    assert 3 == store.resume(ME, b"a", 1, past=3).num_tokens
    with pytest.raises(CacheLostError):
        store.resume(ME, b"a", 1, past=4)
    with pytest.raises(CacheLostError):
        store.resume(ME, b"a", 2, past=3)


def test_a_cache_over_the_whole_bound_is_not_kept():
    """The request is answered without one; others keep theirs."""
    store = store_of(2)
    store.open(ME, b"a", 1).num_tokens = 1
    assert store.open(ME, b"big", 3) is None
    assert 1 == store.resume(ME, b"a", 1, past=1).num_tokens


def test_clear_gives_up_all():
    """New weights."""
    store = store_of(2)
    store.open(ME, b"a", 1).num_tokens = 1
    store.clear()
    assert 0 == store.size_bytes
    with pytest.raises(CacheLostError):
        store.resume(ME, b"a", 1, past=1)


def test_a_client_over_its_bound_loses_its_own_oldest():
    """Though there is room, and though the caches of others are older."""
    store = store_of(8, for_each=2)
    store.open("other", b"first", 1)
    for name in (b"a", b"b", b"c"):
        store.open(ME, name, 1)
    assert [b"b", b"c"] == kept(store, ME, [b"a", b"b", b"c"])
    assert [b"first"] == kept(store, "other", [b"first"])


def test_a_cache_over_the_bound_of_one_client_is_not_kept():
    """And costs nobody another one."""
    store = store_of(8, for_each=2)
    store.open(ME, b"a", 1)
    assert store.open(ME, b"big", 3) is None
    assert [b"a"] == kept(store, ME, [b"a"])


def test_a_stranger_takes_no_memory_from_those_within_an_equal_share():
    """However many it opens: with full memory it loses its own."""
    store = store_of(6, for_each=5)
    mine = [b"a", b"b", b"c"]
    for name in mine:
        store.open(ME, name, 1)
    theirs = [bytes([index]) for index in range(20)]
    for name in theirs:
        store.open("stranger", name, 1)
    assert mine == kept(store, ME, mine)
    assert theirs[-3:] == kept(store, "stranger", theirs)


def test_a_newcomer_finds_room_where_others_have_more_than_an_equal_share():
    """The oldest of theirs goes; those with little keep what they have."""
    store = store_of(6, for_each=5)
    store.open("small", b"old", 1)
    large = [bytes([index]) for index in range(5)]
    for name in large:
        store.open("large", name, 1)
    store.open(ME, b"a", 1)
    assert [b"a"] == kept(store, ME, [b"a"])
    assert [b"old"] == kept(store, "small", [b"old"])
    assert large[1:] == kept(store, "large", large)


def test_one_that_wants_more_than_is_left_of_the_others_goes_without():
    """Its cache is larger than an equal share, and nobody else has more than one."""
    store = store_of(4)
    for asker in ("a", "b", "c"):
        store.open(asker, b"x", 1)
    assert store.open(ME, b"big", 2) is None
    assert all([b"x"] == kept(store, asker, [b"x"]) for asker in ("a", "b", "c"))


def test_a_name_belongs_to_the_client_that_gave_it():
    """Nobody goes on from another one's cache, or replaces it."""
    store = store_of(4)
    store.open(ME, b"a", 1).num_tokens = 5
    with pytest.raises(CacheLostError):
        store.resume("other", b"a", 1, past=5)
    store.open("other", b"a", 1)
    assert 5 == store.resume(ME, b"a", 1, past=5).num_tokens
