"""The caches a holder keeps for clients between traversals, within a bound on memory."""

from __future__ import annotations

from collections import OrderedDict

import torch

from bt_p2p.errors import CacheLostError
from bt_p2p.model.kv_cache import BlockCache, cache_size_bytes
from bt_p2p.protocol.manifest import ModelSpec


class CacheStore:
    """Caches by their client's secret id; the one unused for longest goes first."""

    def __init__(self, spec: ModelSpec, *, max_size_bytes: int) -> None:
        """Start empty."""
        self._spec = spec
        self._max_size_bytes = max_size_bytes
        self._caches: OrderedDict[bytes, BlockCache] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """Memory of all caches."""
        return sum(cache.size_bytes for cache in self._caches.values())

    def open(self, cache_id: bytes, num_sequences: int) -> BlockCache | None:
        """A new, empty cache, which replaces one of the same id; None if it alone is too large."""
        self._caches.pop(cache_id, None)
        needed = cache_size_bytes(self._spec, num_sequences)
        if needed > self._max_size_bytes:
            return None
        while self._caches and self.size_bytes + needed > self._max_size_bytes:
            self._caches.popitem(last=False)
        cache = BlockCache(self._spec, num_sequences, torch.device("cpu"))
        self._caches[cache_id] = cache
        return cache

    def resume(self, cache_id: bytes, num_sequences: int, *, past: int) -> BlockCache:
        """The cache of a client, cut to the positions it wants to keep.

        Raises:
            CacheLostError: it was given up, or never held so many; the client sends all again.
        """
        cache = self._caches.get(cache_id)
        if cache is None or cache.num_sequences != num_sequences or cache.num_tokens < past:
            raise CacheLostError(f"this holder does not keep your first {past} tokens any more")
        self._caches.move_to_end(cache_id)
        cache.truncate(past)
        return cache

    def clear(self) -> None:
        """Give up all: they belong to older weights."""
        self._caches.clear()
