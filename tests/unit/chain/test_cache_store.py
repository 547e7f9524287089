"""bt_p2p.chain.cache_store: what a holder keeps, and what it gives up."""

from __future__ import annotations

import pytest

from bt_p2p.chain.cache_store import CacheStore
from bt_p2p.errors import CacheLostError
from bt_p2p.model.kv_cache import cache_size_bytes
from bt_p2p.testing.tiny import TINY_MODEL

ONE = cache_size_bytes(TINY_MODEL, 1)


def test_the_one_unused_for_longest_goes_first():
    """Memory stays within its bound; a resumed cache counts as used."""
    store = CacheStore(TINY_MODEL, max_size_bytes=2 * ONE)
    for name in (b"a", b"b"):
        cache = store.open(name, 1)
        cache.num_tokens = 5
    store.resume(b"a", 1, past=5)
    store.open(b"c", 1)
    assert 2 * ONE == store.size_bytes
    assert 5 == store.resume(b"a", 1, past=5).num_tokens
    with pytest.raises(CacheLostError, match="your first 5 tokens"):
        store.resume(b"b", 1, past=5)


def test_opening_again_begins_anew():
    """The old one of that name is replaced, and takes no memory twice."""
    store = CacheStore(TINY_MODEL, max_size_bytes=2 * ONE)
    store.open(b"a", 1).num_tokens = 5
    assert 0 == store.open(b"a", 1).num_tokens
    assert ONE == store.size_bytes


def test_resume_cuts_to_what_the_client_keeps():
    """Fewer tokens than seen are fine, more are lost."""
    store = CacheStore(TINY_MODEL, max_size_bytes=2 * ONE)
    store.open(b"a", 1).num_tokens = 5
    assert 3 == store.resume(b"a", 1, past=3).num_tokens
    with pytest.raises(CacheLostError):
        store.resume(b"a", 1, past=4)
    with pytest.raises(CacheLostError):
        store.resume(b"a", 2, past=3)


def test_a_cache_over_the_whole_bound_is_not_kept():
    """The request is answered without one; others keep theirs."""
    store = CacheStore(TINY_MODEL, max_size_bytes=2 * ONE)
    store.open(b"a", 1).num_tokens = 1
    assert store.open(b"big", 3) is None
    assert 1 == store.resume(b"a", 1, past=1).num_tokens


def test_clear_gives_up_all():
    """New weights."""
    store = CacheStore(TINY_MODEL, max_size_bytes=2 * ONE)
    store.open(b"a", 1).num_tokens = 1
    store.clear()
    assert 0 == store.size_bytes
    with pytest.raises(CacheLostError):
        store.resume(b"a", 1, past=1)
