"""The caches a holder keeps for clients between traversals, within a bound on memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Set

import torch

from bt_p2p.errors import CacheLostError
from bt_p2p.model.kv_cache import BlockCache, cache_size_bytes
from bt_p2p.protocol.manifest import ModelSpec


class CacheStore:
    """Caches by their client and its secret id; the one unused for longest goes first.

    A client over its own bound loses its own. When all memory is taken, only clients that have more
    than an equal share lose any, so that none is pushed out by one that wants much.
    """

    def __init__(self, spec: ModelSpec, *, max_size_bytes: int, max_asker_size_bytes: int) -> None:
        """Start empty.

        Args:
            spec: shape of the caches.
            max_size_bytes: of all caches.
            max_asker_size_bytes: of all caches of one client.
        """
        self._spec = spec
        self._max_size_bytes = max_size_bytes
        self._max_asker_size_bytes = max_asker_size_bytes
        self._caches: OrderedDict[tuple[str, bytes], BlockCache] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """Memory of all caches."""
        return sum(cache.size_bytes for cache in self._caches.values())

    def open(self, asker: str, cache_id: bytes, num_sequences: int) -> BlockCache | None:
        """A new, empty cache, which replaces one of the same id; None if there is no room for it."""
        self._caches.pop((asker, cache_id), None)
        if not self._make_room(asker, cache_size_bytes(self._spec, num_sequences)):
            return None
        cache = BlockCache(self._spec, num_sequences, torch.device("cpu"))
        self._caches[asker, cache_id] = cache
        return cache

    def resume(self, asker: str, cache_id: bytes, num_sequences: int, *, past: int) -> BlockCache:
        """The cache of a client, cut to the positions it wants to keep.

        Raises:
            CacheLostError: it was given up, or never held so many; the client sends all again.
        """
        cache = self._caches.get((asker, cache_id))
        if cache is None or cache.num_sequences != num_sequences or cache.num_tokens < past:
            raise CacheLostError(f"this holder does not keep your first {past} tokens any more")
        self._caches.move_to_end((asker, cache_id))
        cache.truncate(past)
        return cache

    def clear(self) -> None:
        """Give up all: they belong to older weights."""
        self._caches.clear()

    def _make_room(self, asker: str, size_bytes: int) -> bool:
        """Give up what must go for a new cache; False if there is no room even so."""
        if size_bytes > self._max_asker_size_bytes:
            return False
        while True:
            wanted = Counter({asker: size_bytes})
            for (owner, _), cache in self._caches.items():
                wanted[owner] += cache.size_bytes
            if wanted[asker] > self._max_asker_size_bytes:
                losers: Set[str] = {asker}
            elif wanted.total() > self._max_size_bytes:
                losers = over_equal_share(wanted, self._max_size_bytes)
            else:
                return True
            oldest = next((key for key in self._caches if key[0] in losers), None)
            if oldest is None:
                return False
            del self._caches[oldest]


def over_equal_share(wanted: Mapping[str, int], max_size_bytes: int) -> set[str]:
    """Those who want more than all would get if the memory were divided equally among them."""
    return {asker for asker, size in wanted.items() if size * len(wanted) > max_size_bytes}
