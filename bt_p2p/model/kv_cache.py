"""Keys and values of the positions a block has seen, so that new ones need no second pass.

Shapes: N sequences, H heads, T positions up to the context, K size of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bt_p2p.protocol.manifest import ModelSpec


class LayerCache:
    """Keys and values of one layer."""

    def __init__(self, shape: tuple[int, int, int, int], device: torch.device) -> None:
        self._kv_2NHTK = torch.zeros((2, *shape), device=device)

    def extend(self, past: int, kv_2NHTK: Tensor) -> Tensor:
        """Write new keys and values behind the first `past`; returns all of them."""
        num_new = kv_2NHTK.shape[3]
        self._kv_2NHTK.narrow(3, past, num_new).copy_(kv_2NHTK)
        return self._kv_2NHTK.narrow(3, 0, past + num_new)


class BlockCache:
    """Keys and values of all layers of a block, allocated once for a whole context.

    Attributes:
        num_tokens: positions that are valid; those behind them are written over.
    """

    def __init__(self, spec: ModelSpec, num_sequences: int, device: torch.device) -> None:
        """Allocate; `size_bytes` says how much it takes."""
        self.num_sequences = num_sequences
        self.num_tokens = 0
        head_size = spec.d_model // spec.num_heads
        shape = (num_sequences, spec.num_heads, spec.context, head_size)
        self.layers = [LayerCache(shape, device) for _ in range(spec.layers_per_block)]
        self.size_bytes = cache_size_bytes(spec, num_sequences)

    def truncate(self, num_tokens: int) -> None:
        """Forget the positions from `num_tokens` on.

        Raises:
            ValueError: there are not so many.
        """
        if not 0 <= num_tokens <= self.num_tokens:
            raise ValueError(f"the cache holds {self.num_tokens} tokens, not {num_tokens}")
        self.num_tokens = num_tokens


def cache_size_bytes(spec: ModelSpec, num_sequences: int) -> int:
    """Float32 keys and values of all layers at full context."""
    return 2 * 4 * num_sequences * spec.context * spec.d_model * spec.layers_per_block
