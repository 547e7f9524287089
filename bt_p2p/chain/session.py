"""Traversals of all blocks over the network, with another holder when one fails."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from bt_p2p.chain.block_rpc import BlockClient, ForwardReply, ForwardRequest, HandTo
from bt_p2p.chain.kept_context import KeptContext
from bt_p2p.chain.modes import Precision
from bt_p2p.chain.route import Route, plan_route
from bt_p2p.errors import (
    ChainError,
    NoRouteError,
    PeerError,
    PeerLostCacheError,
    PeerTimeoutError,
    PeerUnreachableError,
    ProtocolError,
    WireFormatError,
)
from bt_p2p.objective.base import TraversalMode
from bt_p2p.objective.compose import compose
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.limits import LINK_ID_SIZE_BYTES, READ_TIMEOUT_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview

logger = logging.getLogger(__name__)

FIRST_PATIENCE_S = 2.0
"""A holder never asked before gets so long before another one is asked as well."""
MIN_PATIENCE_S = 0.3
"""The same for one that used to be quick; else four times what it took last."""

PROBE_TIMEOUT_S = 1.5
"""A holder that does not say in this time whether it is there is asked last."""
MAX_PROBES = 4
"""Holders of one block that are measured before the first is asked."""
MAX_FORWARD_FAILURES = 3
"""After so many in a row the client carries what blocks need itself, to the end of the session."""

LookUp = Callable[[], SwarmOverview]
"""Reads the swarm anew; may block for the directory's deadline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hop:
    """One block's part of a traversal."""

    block: int
    peer_id: str
    round_index: int
    total_ms: float
    """From the client's request to the whole answer."""
    compute_ms: float
    """As the holder says."""


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


Answer = tuple[ForwardReply, Hop]


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
        self._client = client
        self._look_up = look_up
        self._latency_s: dict[str, float] = {}
        self._probed_s: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._route: Route | None = None
        self._kept = KeptContext()
        self._num_forward_failures = 0
        self._forward_wait_s: float | None = None
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
        self._failed = {}
        await self._plan()
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
            forwarded = await self._forwarded_if_possible(requests, is_kept=is_kept)
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
            failed_peers=tuple(f"…{peer[-6:]}: {why}" for peer, why in self._failed.items()),
            is_forwarded=is_forwarded,
        )

    async def _plan(self) -> Route:
        if self._route is None:
            overview = await asyncio.to_thread(self._look_up)
            route = plan_route(overview, latency_s=self._known_s, avoid=self._failed)
            await self._probe(route)
            self._route = plan_route(overview, latency_s=self._known_s, avoid=self._failed)
        return self._route

    @property
    def _known_s(self) -> Mapping[str, float]:
        """What is expected of peers: as they answered, else as they were measured."""
        return self._probed_s | self._latency_s

    async def _probe(self, route: Route) -> None:
        """Measure peers never asked, where there is a choice; those that do not answer come last."""
        blocks: dict[str, int] = {}
        for block, holders in enumerate(route.holders):
            if len(holders) > 1:
                for lease in holders[:MAX_PROBES]:
                    if lease.peer_id not in self._known_s:
                        blocks.setdefault(lease.peer_id, block)

        async def measure(peer_id: str, block: int) -> float:
            started_s = time.perf_counter()
            try:
                readiness = await self._client.ready(
                    peer_id, run_id=self._run_id, block=block, timeout_s=PROBE_TIMEOUT_S
                )
            except (PeerError, ProtocolError) as exc:
                logger.info("not counted on: %s", exc)
                return math.inf
            return time.perf_counter() - started_s + readiness.wait_s

        measured = await asyncio.gather(*(measure(*each) for each in blocks.items()))
        self._probed_s |= dict(zip(blocks, measured, strict=True))

    async def _forwarded_if_possible(
        self, requests: Sequence[ForwardRequest], *, is_kept: bool
    ) -> list[Answer] | None:
        if len(requests) < 2 or self._num_forward_failures >= MAX_FORWARD_FAILURES:
            return None
        answers = await self._forwarded(requests, is_kept=is_kept)
        if answers is None:
            self._num_forward_failures += 1
            self._kept = KeptContext()  # holders know more than we can repeat to others
        else:
            self._num_forward_failures = 0
        return answers

    async def _carried(self, requests: Sequence[ForwardRequest], *, is_kept: bool) -> list[Answer]:
        """One block after another; what each needs passes through the client."""
        answers: list[Answer] = []
        for request in requests:
            if answers:
                before, _ = answers[-1]
                request = replace(request, z_NPZ=before.z_NPZ, features_NTD=before.features_NTD)
            answers.append(await self._ask_block(request, is_kept=is_kept))
        return answers

    async def _forwarded(
        self, requests: Sequence[ForwardRequest], *, is_kept: bool
    ) -> list[Answer] | None:
        """One traversal in which holders hand on to each other; None when it fails."""
        route = await self._plan()
        if not all(route.holders):  # one has failed since; whoever carries looks for others
            return None
        peer_ids = [holders[0].peer_id for holders in route.holders]
        for _ in range(2):
            sent = self._linked(requests, peer_ids, is_kept=is_kept)
            try:
                answers = await self._gather_in_order(sent, peer_ids)
            except PeerLostCacheError:
                self._kept = KeptContext()  # everything again, to everybody
                continue
            except (PeerError, ProtocolError) as exc:
                logger.info("a forwarded traversal failed: %s", exc)
                return None
            if is_kept:
                for peer_id, whole, part, (reply, _) in zip(
                    peer_ids, requests, sent, answers, strict=True
                ):
                    self._kept.completed(peer_id, whole, part, reply)
            return answers
        return None

    def _linked(
        self, requests: Sequence[ForwardRequest], peer_ids: Sequence[str], *, is_kept: bool
    ) -> list[ForwardRequest]:
        """The requests of a forwarded traversal.

        All holders begin at the same token, since each needs the features of all tokens it is sent.
        """
        pairs = list(zip(peer_ids, requests, strict=True))
        if is_kept:
            past = min(self._kept.num_kept(peer_id, request) for peer_id, request in pairs)
            requests = [
                self._kept.shortened(peer_id, request, at_most=past) for peer_id, request in pairs
            ]
        links = [secrets.token_bytes(LINK_ID_SIZE_BYTES) for _ in requests[1:]]
        linked = [replace(requests[0], hands_to=HandTo(peer_id=peer_ids[1], link_id=links[0]))]
        for index, request in enumerate(requests[1:], start=1):
            hands_to = None
            if index < len(links):
                hands_to = HandTo(peer_id=peer_ids[index + 1], link_id=links[index])
            linked.append(
                replace(request, z_NPZ=None, takes_from=links[index - 1], hands_to=hands_to)
            )
        return linked

    async def _gather_in_order(
        self, sent: Sequence[ForwardRequest], peer_ids: Sequence[str]
    ) -> list[Answer]:
        """Ask all holders at once; they answer one after another.

        Raises:
            PeerError: a holder failed, or keeps the others waiting while another could be asked.
            ProtocolError: an answer is malformed.
        """
        tasks = [
            asyncio.create_task(self._ask_once(peer_id, request))
            for peer_id, request in zip(peer_ids, sent, strict=True)
        ]
        longest_s = 0.0
        try:
            while True:
                started_s = time.perf_counter()
                index = next((i for i, task in enumerate(tasks) if not task.done()), None)
                if index is None:
                    break
                patience_s = self._forward_patience_s(sent[index].block)
                pending = {task for task in tasks if not task.done()}
                done, _ = await asyncio.wait(
                    pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                longest_s = max(longest_s, time.perf_counter() - started_s)
                for peer_id, task in zip(peer_ids, tasks, strict=True):
                    error = task.exception() if task in done else None
                    if isinstance(error, PeerUnreachableError | ProtocolError):
                        self._give_up(peer_id, str(error))
                    if error is not None:  # a refusal may be the fault of the holder before
                        raise error
                if not done:
                    late_id = peer_ids[index]
                    if self._route is not None:
                        self._route = self._route.demoted(late_id)
                    raise PeerTimeoutError(
                        f"peer …{late_id[-6:]} keeps the others waiting", peer_id=late_id
                    )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._forward_wait_s = longest_s
        return [task.result() for task in tasks]

    def _forward_patience_s(self, block: int) -> float | None:
        """How long to wait for the next answer of a forwarded traversal; None if nobody else is there."""
        if self._route is None or len(self._route.holders[block]) < 2:
            return None
        usual_s = self._forward_wait_s
        return FIRST_PATIENCE_S if usual_s is None else max(MIN_PATIENCE_S, 4 * usual_s)

    async def _ask_block(self, request: ForwardRequest, *, is_kept: bool) -> Answer:
        """Ask holders of one block until one answers, looking for new ones once."""
        has_looked_again = False
        while True:
            try:
                route = await self._plan()
            except NoRouteError as exc:
                if not self._failed:
                    raise
                raise ChainError(f"{exc} (failed just now: {self._failures()})") from exc
            candidates = [
                lease.peer_id
                for lease in route.holders[request.block]
                if lease.peer_id not in self._failed
            ]
            answer = await self._ask_in_turn(candidates, request, is_kept=is_kept)
            if answer is not None:
                return answer
            if has_looked_again:
                raise ChainError(
                    f"every holder of block {request.block} failed: {self._failures()}"
                )
            has_looked_again = True
            self._route = None

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
                if not done and self._route is not None:  # those are asked last from now on
                    for slow_id in running.values():
                        self._route = self._route.demoted(slow_id)
                for task in done:
                    failed_id = running.pop(task)
                    try:
                        return task.result()
                    except (PeerError, ProtocolError) as exc:
                        self._give_up(failed_id, str(exc))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return None

    def _give_up(self, peer_id: str, reason: str) -> None:
        """Leave a peer out; later traversals do not wait for it again."""
        self._failed[peer_id] = reason
        if self._route is not None:
            self._route = self._route.without(peer_id)

    def _patience_s(self, peer_id: str) -> float:
        """How long one holder is asked alone while there are others."""
        usual_s = self._latency_s.get(peer_id)
        return FIRST_PATIENCE_S if usual_s is None else max(MIN_PATIENCE_S, 4 * usual_s)

    async def _ask_peer(self, peer_id: str, request: ForwardRequest, *, is_kept: bool) -> Answer:
        """One block by one peer, which is told only what it has not seen."""
        sent = self._kept.shortened(peer_id, request) if is_kept else request
        try:
            reply, hop = await self._ask_once(peer_id, sent)
        except PeerLostCacheError:
            self._kept.forget(request.block)
            sent = self._kept.shortened(peer_id, request)
            reply, hop = await self._ask_once(peer_id, sent)
        self._latency_s[peer_id] = hop.total_ms / 1000
        if is_kept:
            reply = self._kept.completed(peer_id, request, sent, reply)
        return reply, hop

    async def _ask_once(self, peer_id: str, request: ForwardRequest) -> Answer:
        started_s = time.perf_counter()
        reply = await self._client.forward(peer_id, request, timeout_s=READ_TIMEOUT_S)
        self._check_features(reply, request)
        elapsed_s = time.perf_counter() - started_s
        hop = Hop(
            block=request.block,
            peer_id=peer_id,
            round_index=reply.round_index,
            total_ms=1000 * elapsed_s,
            compute_ms=reply.compute_ms,
        )
        return reply, hop

    def _check_features(self, reply: ForwardReply, request: ForwardRequest) -> None:
        """The next block gets features of our model's width, or nothing."""
        expected = None
        if self.manifest.objective.name == "cascade" and request.is_answered_whole:
            expected = (*request.tokens_NT.shape, self.manifest.model.d_model)
        found = None if reply.features_NTD is None else tuple(reply.features_NTD.shape)
        if found != expected:
            raise WireFormatError(f"features are {found}, expected {expected}")

    def _failures(self) -> str:
        return "; ".join(f"…{peer[-6:]} {why}" for peer, why in self._failed.items())
