"""Sequences of many lengths and pasts, computed by a block in one pass.

The new positions of all segments lie one after another in a single row. What looks at one position
at a time (matrices, norms, rotary angles) takes the row as it is; attention takes each segment apart.

Shapes: N sequences and T new positions of one segment, S positions of the whole row, D d_model,
H heads, K size of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from bt_p2p.model.kv_cache import BlockCache


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Sequences of one length and one past."""

    tokens_NT: Tensor
    """Int64 [sequences, tokens]: bytes or MASK_TOKEN."""
    upstream_NTD: Tensor | None = None
    """Features of the block before, for `cascade`; None counts as zeros."""
    cache: BlockCache | None = None
    """What the block saw before these tokens; they are added to it. Of no other segment."""

    @property
    def past(self) -> int:
        """Positions before these."""
        return 0 if self.cache is None else self.cache.num_tokens


class Packing:
    """How segments share a row, and what each of their positions sees.

    Attributes:
        tokens_1S: int64 [1, all tokens].
        upstream_1SD: float32 [1, all tokens, d_model], or None where no segment has any.
        positions_S: int64, of each token in its own sequence.
        longest: positions of the longest sequence, its past included.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Lay out at least one segment; caches are written by `mix`, and valid after `keep`."""
        self._segments = segments
        self._sizes = [segment.tokens_NT.numel() for segment in segments]
        self._is_seen = [_is_seen(segment) for segment in segments]
        self.tokens_1S = torch.cat([each.tokens_NT.flatten() for each in segments]).unsqueeze(0)
        self.positions_S = torch.cat([row for each in segments for row in _positions(each)])
        self.upstream_1SD = self._upstream()
        self.longest = max(each.past + each.tokens_NT.shape[1] for each in segments)

    def mix(self, layer: int, q_1HSK: Tensor, k_1HSK: Tensor, v_1HSK: Tensor) -> Tensor:
        """Attention of each segment to itself and its past; see `transformer.Mix`."""
        mixed = []
        kv_2HSK = torch.cat((k_1HSK, v_1HSK))
        rows = zip(
            self._segments,
            self._is_seen,
            q_1HSK[0].split_with_sizes(self._sizes, dim=1),
            kv_2HSK.split_with_sizes(self._sizes, dim=2),
            strict=True,
        )
        for segment, is_seen_TT, q_HSK, kv_2HSK in rows:
            sizes = segment.tokens_NT.shape
            q_NHTK = q_HSK.view(len(q_HSK), *sizes, -1).transpose(0, 1)
            kv_2NHTK = kv_2HSK.view(2, len(q_HSK), *sizes, -1).transpose(1, 2)
            if segment.cache is not None:
                kv_2NHTK = segment.cache.layers[layer].extend(segment.past, kv_2NHTK)
            k_NHTK, v_NHTK = kv_2NHTK.unbind()
            mixed_NHTK = F.scaled_dot_product_attention(
                q_NHTK,
                k_NHTK,
                v_NHTK,
                attn_mask=is_seen_TT,
                is_causal=segment.past == 0 and sizes[1] > 1,
            )
            mixed.append(mixed_NHTK.transpose(0, 1).flatten(1, 2))
        return torch.cat(mixed, dim=1).unsqueeze(0)

    def split(self, row_1SD: Tensor) -> list[Tensor]:
        """The part of each segment, [sequences, tokens, ...]."""
        parts = row_1SD[0].split_with_sizes(self._sizes)
        return [
            part.view(*segment.tokens_NT.shape, -1)
            for part, segment in zip(parts, self._segments, strict=True)
        ]

    def keep(self) -> None:
        """Count what was written to the caches as seen."""
        for segment in self._segments:
            if segment.cache is not None:
                segment.cache.num_tokens += segment.tokens_NT.shape[1]

    def _upstream(self) -> Tensor | None:
        given = [each.upstream_NTD for each in self._segments if each.upstream_NTD is not None]
        if not given:
            return None
        width = given[0].shape[-1]
        rows = [
            each.upstream_NTD.flatten(0, 1)
            if each.upstream_NTD is not None
            else given[0].new_zeros(each.tokens_NT.numel(), width)
            for each in self._segments
        ]
        return torch.cat(rows).unsqueeze(0)


def _positions(segment: Segment) -> list[Tensor]:
    """Int64 positions of the tokens of each sequence."""
    num_sequences, num_tokens = segment.tokens_NT.shape
    end = segment.past + num_tokens
    return [torch.arange(segment.past, end, device=segment.tokens_NT.device)] * num_sequences


def _is_seen(segment: Segment) -> Tensor | None:
    """Which position sees which, bool [new, past + new]; None if all are seen, or the past is empty."""
    num_tokens, past = segment.tokens_NT.shape[1], segment.past
    if num_tokens == 1 or past == 0:
        return None
    shape = (num_tokens, past + num_tokens)
    return torch.ones(shape, dtype=torch.bool, device=segment.tokens_NT.device).tril(diagonal=past)
