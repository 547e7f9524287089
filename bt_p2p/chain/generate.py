"""Bytes from traversals.

`ar` asks for one byte each time, `draft` checks a guess at several, and `sweep` draws a whole chunk
at once, without regard of one another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bt_p2p.chain.drafter import Drafter, RepeatDrafter
from bt_p2p.chain.holders import Hop
from bt_p2p.chain.modes import GenerateMode
from bt_p2p.chain.sampling import Sampling, sample_bytes
from bt_p2p.chain.session import ChainSession
from bt_p2p.chain.window import window_end, window_start
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import MASK_TOKEN, RunManifest

DRAFT_BYTES = 8
"""Guesses that one traversal checks, unless told otherwise."""
MAX_NEW_BYTES = 100_000
MAX_SEED = 2**63


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateOptions:
    """What to generate."""

    mode: GenerateMode = "ar"
    max_new_bytes: int = 200
    chunk_bytes: int | None = None
    """`sweep`: bytes in one traversal; None is the longest the run was trained for. `draft`: guesses
    that one traversal checks; None is `DRAFT_BYTES`."""
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """New bytes, and how the traversal that gave them went."""

    data: bytes
    hops: tuple[Hop, ...]
    failed_peers: tuple[str, ...]
    log_probs_PV: Tensor
    """Float32 [bytes, 256]: the model's distribution of each byte, before temperature and top-p."""


def check_options(options: GenerateOptions, prompt: bytes, manifest: RunManifest) -> None:
    """Refuse what cannot be generated.

    Raises:
        ConfigError: the prompt is empty or over the context, or a number is out of range.
    """
    context = manifest.model.context
    if not prompt:
        raise ConfigError("the prompt is empty; give at least one byte of text")
    if len(prompt) > context:
        raise ConfigError(
            f"the prompt has {len(prompt)} bytes, over the context of {context}; shorten it, or "
            f"use --truncate to keep its end"
        )
    if not 1 <= options.max_new_bytes <= MAX_NEW_BYTES:
        raise ConfigError(f"max new bytes {options.max_new_bytes} is outside 1 to {MAX_NEW_BYTES}")
    if not 0 <= options.seed < MAX_SEED:
        raise ConfigError(f"seed {options.seed} is outside 0 to {MAX_SEED - 1}")
    longest = manifest.objective.sweep_max_bytes
    if options.mode == "draft":
        longest = context - 1
    if options.chunk_bytes is not None and not 1 <= options.chunk_bytes <= longest:
        raise ConfigError(
            f"chunk {options.chunk_bytes} is outside 1 to {longest}, the longest of this run and mode"
        )


async def generate(
    session: ChainSession, prompt: bytes, options: GenerateOptions, drafter: Drafter | None = None
) -> AsyncIterator[Chunk]:
    """Yield new bytes as traversals bring them.

    `draft` gives the bytes that `ar` gives, for the same seed and weights: every byte is drawn from
    the model's own distribution with the noise of its position. Drafted bytes only decide for how
    many positions one traversal asks.

    Cancelling between chunks leaves nothing behind.

    Args:
        session: a client's session.
        prompt: what comes before; at most the context.
        options: what to generate.
        drafter: guesses for mode `draft`; None repeats from the text.

    Raises:
        ConfigError: as `check_options`.
        ChainError: a block has no holder that answers; what was yielded before stays valid.
    """
    manifest = session.manifest
    check_options(options, prompt, manifest)
    noise = torch.Generator().manual_seed(options.seed)
    drafter = drafter or RepeatDrafter()
    text = bytearray(prompt)
    end = len(prompt) + options.max_new_bytes
    while len(text) < end:
        position = len(text)
        num_new = _num_new(options, manifest, position, end)
        guess = b""
        if options.mode == "draft" and num_new > 1:
            guess = await asyncio.to_thread(
                drafter.draft, bytes(text), num_new - 1, options.sampling, options.seed
            )
            num_new = 1 + len(guess)
        tokens = _window(text, options, manifest, guess, num_new)
        traversal = await session.traverse(
            torch.tensor([tokens]),
            start=len(tokens) - num_new,
            mode="advance",
            z_NPZ=session.objective.initial_noise(1, num_new, noise),
            is_kept=True,
        )
        log_probs_PV = traversal.log_probs_NPV[0]
        drawn = bytes(
            sample_bytes(log_probs_PV, options.sampling, seed=options.seed, position=position)
        )
        if options.mode == "draft":
            # the byte after a wrong guess was drawn from a text that is not ours
            drawn = drawn[: 1 + _num_equal(drawn, guess)]
        text += drawn
        yield Chunk(
            data=drawn,
            hops=traversal.hops,
            failed_peers=traversal.failed_peers,
            log_probs_PV=log_probs_PV[: len(drawn)],
        )


def _num_new(options: GenerateOptions, manifest: RunManifest, position: int, end: int) -> int:
    """Bytes that the next traversal may give."""
    longest = 1
    if options.mode == "sweep":
        longest = options.chunk_bytes or manifest.objective.sweep_max_bytes
    elif options.mode == "draft":
        longest = 1 + (options.chunk_bytes or DRAFT_BYTES)
        longest = min(longest, window_end(position, manifest.model.context) - position)
    return min(longest, end - position)


def _window(
    text: bytearray, options: GenerateOptions, manifest: RunManifest, guess: bytes, num_new: int
) -> list[int]:
    """The tokens of a traversal, whose last `num_new` positions are read."""
    context = manifest.model.context
    if options.mode == "sweep":
        # the last known byte predicts the first new one; a mask predicts each byte after it
        known = text[window_start(len(text) + num_new - 1, context) :]
        return [*known, *[MASK_TOKEN] * (num_new - 1)]
    return [*text[window_start(len(text), context) :], *guess]


def _num_equal(first: bytes, second: bytes) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
