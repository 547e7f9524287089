"""One answer, timed. Needs nothing of a session but what `generate` needs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from bt_p2p.chain.block_rpc import BlockClient, ForwardRequest
from bt_p2p.chain.drafter import Drafter
from bt_p2p.chain.generate import Chunk, GenerateOptions, generate
from bt_p2p.chain.holders import Hop, LookUp
from bt_p2p.chain.modes import Precision
from bt_p2p.chain.session import ChainSession, Traversal
from bt_p2p.protocol.manifest import RunManifest

_REQUEST_TIMEOUT_S = 10.0


class TimedSession(ChainSession):
    """Notes how long each traversal takes.

    Attributes:
        traversal_ms: of all so far.
        num_forwarded: of them, those in which holders handed on to each other.
    """

    def __init__(
        self,
        manifest: RunManifest,
        client: BlockClient,
        look_up: LookUp,
        *,
        precision: Precision = "float32",
    ) -> None:
        """See `ChainSession`."""
        super().__init__(manifest, client, look_up, precision=precision)
        self.traversal_ms: list[float] = []
        self.num_forwarded = 0

    async def traverse(self, tokens_NT: Tensor, **options: Any) -> Traversal:
        """See `ChainSession.traverse`."""
        started_s = time.perf_counter()
        traversal = await super().traverse(tokens_NT, **options)
        self.traversal_ms.append(1000 * (time.perf_counter() - started_s))
        self.num_forwarded += traversal.is_forwarded
        return traversal


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one call of `generate` brought, and when."""

    data: bytes
    chunk_s: tuple[float, ...]
    """From the call to each chunk."""
    traversal_ms: tuple[float, ...]
    hops: tuple[tuple[Hop, ...], ...]
    """Of each traversal."""
    is_sequential: bool
    """Whether blocks waited for one another."""
    num_forwarded: int = 0
    """Traversals in which holders handed on to each other."""

    @property
    def wall_s(self) -> float:
        """From the call to the last byte."""
        return self.chunk_s[-1]

    @property
    def bytes_per_s(self) -> float:
        """Over the whole answer."""
        return len(self.data) / self.wall_s

    @property
    def gaps_s(self) -> list[float]:
        """What a reader waited for each chunk."""
        return [now - before for before, now in pairwise((0.0, *self.chunk_s))]

    @property
    def compute_ms(self) -> list[float]:
        """Of each traversal, what the holders say they computed: the longest, or one after another."""
        join = sum if self.is_sequential else max
        return [float(join(hop.compute_ms for hop in hops)) for hops in self.hops]

    @property
    def hop_overhead_ms(self) -> list[float]:
        """Of each traversal, what a hop took beyond computing.

        Side by side, the mean of what was measured at each hop; in sequence, the traversal shared
        among the hops, since a hop's own time may hold the wait for those before it.
        """
        found = []
        for total_ms, compute_ms, hops in zip(
            self.traversal_ms, self.compute_ms, self.hops, strict=True
        ):
            if self.is_sequential:
                found.append((total_ms - compute_ms) / len(hops))
            else:
                found.append(sum(hop.total_ms - hop.compute_ms for hop in hops) / len(hops))
        return found


async def time_answer(
    session: TimedSession,
    prompt: bytes,
    options: GenerateOptions,
    drafter: Drafter | None = None,
    watch: Callable[[Chunk], None] = lambda _chunk: None,
) -> Answer:
    """Generate one answer with a fresh session.

    Args:
        session: not used before.
        prompt: as for `generate`.
        options: as for `generate`.
        drafter: as for `generate`.
        watch: called with each chunk.
    """
    data, chunk_s, hops = b"", [], []
    started_s = time.perf_counter()
    # it is an async generator, whose end must not be left to the garbage collector
    new = cast("AsyncGenerator[Chunk, None]", generate(session, prompt, options, drafter))
    async with aclosing(new):
        async for chunk in new:
            chunk_s.append(time.perf_counter() - started_s)
            data += chunk.data
            hops.append(chunk.hops)
            watch(chunk)
    return Answer(
        data=data,
        chunk_s=tuple(chunk_s),
        traversal_ms=tuple(session.traversal_ms),
        hops=tuple(hops),
        is_sequential=session.objective.is_sequential("advance"),
        num_forwarded=session.num_forwarded,
    )


async def smallest_request(
    manifest: RunManifest, block: int, client: BlockClient, peer_id: str
) -> float:
    """One token to one holder; milliseconds beyond what the holder says it computed.

    Raises:
        PeerError: it does not answer.
    """
    request = ForwardRequest(
        run_id=manifest.run_id,
        block=block,
        mode="read",
        tokens_NT=torch.zeros(1, 1, dtype=torch.int64),
        start=0,
    )
    started_s = time.perf_counter()
    reply = await client.forward(peer_id, request, timeout_s=_REQUEST_TIMEOUT_S)
    return 1000 * (time.perf_counter() - started_s) - reply.compute_ms
