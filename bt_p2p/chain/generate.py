"""Bytes from traversals: `ar` asks for one byte each time, `sweep` for a whole chunk at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from bt_p2p.chain.sampling import Sampling, sample_bytes
from bt_p2p.chain.session import ChainSession, Hop
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import MASK_TOKEN, RunManifest

GenerateMode = Literal["ar", "sweep"]
MAX_NEW_BYTES = 100_000
MAX_SEED = 2**63


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateOptions:
    """What to generate."""

    mode: GenerateMode = "ar"
    max_new_bytes: int = 200
    chunk_bytes: int | None = None
    """`sweep`: bytes in one traversal; None is the longest the run was trained for."""
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
    if options.chunk_bytes is not None and not 1 <= options.chunk_bytes <= longest:
        raise ConfigError(
            f"chunk {options.chunk_bytes} is outside 1 to {longest}, the longest this run trains"
        )


async def generate(
    session: ChainSession, prompt: bytes, options: GenerateOptions
) -> AsyncIterator[Chunk]:
    """Yield new bytes as traversals bring them.

    The window slides: each traversal sees the last bytes that fit the context. Cancelling between
    chunks leaves nothing behind.

    Raises:
        ConfigError: as `check_options`.
        ChainError: a block has no holder that answers; what was yielded before stays valid.
    """
    manifest = session.manifest
    check_options(options, prompt, manifest)
    generator = torch.Generator().manual_seed(options.seed)
    chunk_bytes = 1
    if options.mode == "sweep":
        chunk_bytes = options.chunk_bytes or manifest.objective.sweep_max_bytes
    text = bytearray(prompt)
    remaining = options.max_new_bytes
    while remaining > 0:
        num_new = min(chunk_bytes, remaining)
        # the last known byte predicts the first new one; a mask predicts each byte after it
        known = bytes(text[-(manifest.model.context - num_new + 1) :])
        tokens = [*known, *[MASK_TOKEN] * (num_new - 1)]
        traversal = await session.traverse(
            torch.tensor([tokens]),
            start=len(known) - 1,
            mode="advance",
            z_NPZ=session.objective.initial_noise(1, num_new, generator),
        )
        log_probs_PV = traversal.log_probs_NPV[0]
        data = bytes(sample_bytes(log_probs_PV, options.sampling, generator))
        text += data
        remaining -= num_new
        yield Chunk(
            data=data,
            hops=traversal.hops,
            failed_peers=traversal.failed_peers,
            log_probs_PV=log_probs_PV,
        )
