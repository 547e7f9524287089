"""Guesses at the next bytes, which one traversal then checks all at once."""

from __future__ import annotations

from typing import Protocol

import torch

from bt_p2p.chain.sampling import Sampling, sample_bytes
from bt_p2p.chain.window import window_start
from bt_p2p.model.block import Block
from bt_p2p.model.kv_cache import BlockCache
from bt_p2p.model.packing import Segment
from bt_p2p.objective.base import log_probs_from

_MIN_MATCH_BYTES = 3
_MAX_MATCH_BYTES = 16


class Drafter(Protocol):
    """Guesses; a wrong guess costs time and changes nothing else."""

    def draft(self, text: bytes, num_bytes: int, sampling: Sampling, seed: int) -> bytes:
        """Up to `num_bytes` bytes that may follow a text; fewer, or none, if it has no idea."""


class RepeatDrafter:
    """What followed the last occurrence of the text's end in the text itself; costs nothing."""

    def draft(self, text: bytes, num_bytes: int, sampling: Sampling, seed: int) -> bytes:  # noqa: ARG002
        """See `Drafter.draft`; the longest end that occurred before counts."""
        for size in range(min(_MAX_MATCH_BYTES, len(text) - 1), _MIN_MATCH_BYTES - 1, -1):
            found = text.rfind(text[-size:], 0, len(text) - 1)
            if found >= 0:
                return text[found + size : found + size + num_bytes]
        return b""


class BlockDrafter:
    """One block of the model, which is a small language model of its own, run by the client.

    It draws with the noise of the seed, so it guesses right where the block alone and the whole
    model would draw the same byte. Only for objectives whose blocks need nothing handed on.
    """

    def __init__(self, block: Block) -> None:
        """Use a block on the CPU."""
        self._block = block.eval()
        self._cache = BlockCache(block.spec, 1, torch.device("cpu"))
        self._seen = b""

    def draft(self, text: bytes, num_bytes: int, sampling: Sampling, seed: int) -> bytes:
        """See `Drafter.draft`."""
        start = window_start(len(text), self._block.spec.context)
        window, drafted = text[start:], bytearray()
        with torch.inference_mode():
            for _ in range(min(num_bytes, self._block.spec.context + 1 - len(window))):
                tokens = window + drafted
                past = self._rewind(tokens)
                segment = Segment(tokens_NT=torch.tensor([list(tokens[past:])]), cache=self._cache)
                [output] = self._block.forward_segments([segment])
                self._seen = bytes(tokens)
                log_probs_PV = log_probs_from(output.logits_BTV, len(tokens) - past - 1)[0]
                drafted += bytes(
                    sample_bytes(
                        log_probs_PV, sampling, seed=seed, position=len(text) + len(drafted)
                    )
                )
        return bytes(drafted)

    def _rewind(self, tokens: bytes) -> int:
        """Cut the cache to what it shares with the tokens, of which the last is seen anew."""
        past = 0
        for mine, theirs in zip(self._seen, tokens[:-1], strict=False):
            if mine != theirs:
                break
            past += 1
        self._cache.truncate(past)
        return past
