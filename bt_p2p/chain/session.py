"""Traversals of all blocks over the network, with another holder when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from bt_p2p.chain.block_rpc import BlockClient, ForwardRequest
from bt_p2p.chain.forwarded import ForwardedChain
from bt_p2p.chain.holders import Answer, Holders, Hop, LookUp
from bt_p2p.chain.kept_context import KeptContext
from bt_p2p.chain.modes import Precision
from bt_p2p.errors import (
    ChainError,
    NoRouteError,
    PeerError,
    PeerLostCacheError,
    ProtocolError,
)
from bt_p2p.objective.base import TraversalMode
from bt_p2p.objective.compose import compose
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import RunManifest


@dataclass(frozen=True, kw_only=True, slots=True)
class Traversal:
    """What all blocks answered."""

    per_block_log_probs: tuple[Tensor, ...]
    """For each block float32 [N, P, 256]."""
    hops: tuple[Hop, ...]
    failed_peers: tuple[str, ...]
    """Peers that were asked in vain, as "peer: reason"."""
    is_forwarded: bool
    """Whether holders handed on to each other, so that it took blocks + 1 one-way trips."""

    @property
    def log_probs_NPV(self) -> Tensor:  # noqa: N802 - carries its shape
        """The model's distribution: the blocks' log-probabilities composed."""
        return compose(self.per_block_log_probs)


class ChainSession:
    """Asks one holder of every block, in parallel where the objective allows it.

    Attributes:
        num_traversals: whole traversals so far.
    """

    def __init__(
        self,
        manifest: RunManifest,
        client: BlockClient,
        look_up: LookUp,
        *,
        precision: Precision = "float32",
    ) -> None:
        """Nothing is asked before the first traversal; tensors travel in `precision`."""
        self.manifest = manifest
        self._run_id = manifest.run_id  # hashed anew at each use
        self._precision = precision
        self.objective = make_objective(manifest, 0)
        self._holders = Holders(manifest, client, look_up)
        self._kept = KeptContext()
        self._forwarded = ForwardedChain(self._holders, self._kept)
        self.num_traversals = 0

    async def traverse(
        self,
        tokens_NT: Tensor,
        *,
        start: int,
        mode: TraversalMode,
        z_NPZ: Tensor | None = None,
        is_kept: bool = False,
    ) -> Traversal:
        """Ask every block once.

        Args:
            tokens_NT: int64 [sequences, tokens], at most the context.
            start: first position whose prediction is wanted.
            mode: `read` for honest log-probabilities, `advance` to generate.
            z_NPZ: noise for `diffusion`, from `objective.initial_noise`.
            is_kept: holders keep what they saw, and only tokens they have not seen are sent. Such
                traversals come one after another.

        Raises:
            NoRouteError: a block has no holder (left).
            ChainError: every holder of a block failed.
        """
        self._holders.failed = {}
        await self._holders.route()
        request = ForwardRequest(
            run_id=self._run_id,
            block=0,
            mode=mode,
            tokens_NT=tokens_NT,
            start=start,
            z_NPZ=z_NPZ,
            precision=self._precision,
        )
        num_blocks = self.manifest.model.num_blocks
        requests = [
            replace(request, block=block, is_last=block == num_blocks - 1)
            for block in range(num_blocks)
        ]
        is_forwarded = False
        if self.objective.is_sequential(mode):
            forwarded = await self._forwarded.traverse(requests, is_kept=is_kept)
            is_forwarded = forwarded is not None
            answers = forwarded or await self._carried(requests, is_kept=is_kept)
        else:
            answers = await asyncio.gather(
                *(self._ask_block(request, is_kept=is_kept) for request in requests)
            )
        self.num_traversals += 1
        return Traversal(
            per_block_log_probs=tuple(reply.log_probs_NPV for reply, _ in answers),
            hops=tuple(hop for _, hop in answers),
            failed_peers=tuple(
                f"…{peer[-6:]}: {why}" for peer, why in self._holders.failed.items()
            ),
            is_forwarded=is_forwarded,
        )

    async def _carried(self, requests: Sequence[ForwardRequest], *, is_kept: bool) -> list[Answer]:
        """One block after another; what each needs passes through the client."""
        answers: list[Answer] = []
        for request in requests:
            if answers:
                before, _ = answers[-1]
                request = replace(request, z_NPZ=before.z_NPZ, features_NTD=before.features_NTD)
            answers.append(await self._ask_block(request, is_kept=is_kept))
        return answers

    async def _ask_block(self, request: ForwardRequest, *, is_kept: bool) -> Answer:
        """Ask holders of one block until one answers, looking for new ones once."""
        has_looked_again = False
        while True:
            try:
                route = await self._holders.route()
            except NoRouteError as exc:
                if not self._holders.failed:
                    raise
                raise ChainError(
                    f"{exc} (failed just now: {_listed(self._holders.failed)})"
                ) from exc
            candidates = [
                lease.peer_id
                for lease in route.holders[request.block]
                if lease.peer_id not in self._holders.failed
            ]
            answer = await self._ask_in_turn(candidates, request, is_kept=is_kept)
            if answer is not None:
                return answer
            if has_looked_again:
                raise ChainError(
                    f"every holder of block {request.block} failed: {_listed(self._holders.failed)}"
                )
            has_looked_again = True
            self._holders.forget_route()

    async def _ask_in_turn(
        self, candidates: Sequence[str], request: ForwardRequest, *, is_kept: bool
    ) -> Answer | None:
        """The first answer, or None if all failed.

        The next holder is asked when one fails, and also, beside it, when one takes much longer than
        it used to: it may be frozen or cut off.
        """
        waiting = list(candidates)
        running: dict[asyncio.Task[Answer], str] = {}
        try:
            while waiting or running:
                patience_s = None
                if waiting:
                    newest_id = waiting.pop(0)
                    asking = self._ask_peer(newest_id, request, is_kept=is_kept)
                    running[asyncio.create_task(asking)] = newest_id
                    patience_s = self._patience_s(newest_id) if waiting else None
                done, _ = await asyncio.wait(
                    running, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    for slow_id in running.values():
                        self._holders.demote(slow_id)
                for task in done:
                    failed_id = running.pop(task)
                    try:
                        return task.result()
                    except (PeerError, ProtocolError) as exc:
                        self._holders.give_up(failed_id, str(exc))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return None

    def _patience_s(self, peer_id: str) -> float:
        return self._holders.patience_s(self._holders.latency_s.get(peer_id))

    async def _ask_peer(self, peer_id: str, request: ForwardRequest, *, is_kept: bool) -> Answer:
        """One block by one peer, which is told only what it has not seen."""
        sent = self._kept.shortened(peer_id, request) if is_kept else request
        try:
            reply, hop = await self._holders.ask(peer_id, sent)
        except PeerLostCacheError:
            self._kept.forget(request.block)
            sent = self._kept.shortened(peer_id, request)
            reply, hop = await self._holders.ask(peer_id, sent)
        self._holders.latency_s[peer_id] = hop.total_ms / 1000
        if is_kept:
            reply = self._kept.completed(peer_id, request, sent, reply)
        return reply, hop


def _listed(failed: Mapping[str, str]) -> str:
    return "; ".join(f"…{peer[-6:]} {why}" for peer, why in failed.items())
