"""What one client knows of the holders of a run, and one request to one of them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bt_p2p.chain.block_rpc import BlockClient, ForwardReply, ForwardRequest
from bt_p2p.chain.route import Route, plan_route
from bt_p2p.errors import PeerError, ProtocolError, WireFormatError
from bt_p2p.protocol.limits import READ_TIMEOUT_S
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


Answer = tuple[ForwardReply, Hop]


class Holders:
    """Whom to ask, measured before and while they are asked.

    Attributes:
        failed: peers that failed in this traversal, and why.
        latency_s: what each peer took when it answered last.
        probed_s: what each peer was expected to take when it was measured.
    """

    def __init__(self, manifest: RunManifest, client: BlockClient, look_up: LookUp) -> None:
        """Ask nobody yet."""
        self._manifest = manifest
        self._run_id = manifest.run_id  # hashed anew at each use
        self._client = client
        self._look_up = look_up
        self._route: Route | None = None
        self._planning = asyncio.Lock()
        self.failed: dict[str, str] = {}
        self.latency_s: dict[str, float] = {}
        self.probed_s: dict[str, float] = {}

    async def route(self) -> Route:
        """The order in which holders are asked, planned when there is none.

        Blocks that need one at the same time share a look at the swarm.

        Raises:
            NoRouteError: a block has no holder.
        """
        async with self._planning:
            if self._route is None:
                overview = await asyncio.to_thread(self._look_up)
                route = plan_route(overview, latency_s=self._known_s, avoid=self.failed)
                await self._probe(route)
                self._route = plan_route(overview, latency_s=self._known_s, avoid=self.failed)
            return self._route

    def forget_route(self) -> None:
        """Look the swarm up before the next request."""
        self._route = None

    def give_up(self, peer_id: str, reason: str) -> None:
        """Leave a peer out; later traversals do not wait for it again."""
        self.failed[peer_id] = reason
        if self._route is not None:
            self._route = self._route.without(peer_id)

    def demote(self, peer_id: str) -> None:
        """Ask a late peer last from now on."""
        if self._route is not None:
            self._route = self._route.demoted(peer_id)

    def num_spare(self, block: int) -> int:
        """Holders of a block besides the first."""
        return 0 if self._route is None else max(0, len(self._route.holders[block]) - 1)

    def patience_s(self, usual_s: float | None) -> float:
        """How long one holder is asked alone while there are others.

        Args:
            usual_s: what such a request used to take; None if it was never made.
        """
        return FIRST_PATIENCE_S if usual_s is None else max(MIN_PATIENCE_S, 4 * usual_s)

    @property
    def _known_s(self) -> Mapping[str, float]:
        """What is expected of peers: as they answered, else as they were measured."""
        return self.probed_s | self.latency_s

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
        self.probed_s |= dict(zip(blocks, measured, strict=True))

    async def ask(self, peer_id: str, request: ForwardRequest) -> Answer:
        """One block by one peer.

        Raises:
            PeerError: it does not answer, or refuses.
            ProtocolError: its answer is malformed.
        """
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
        if self._manifest.objective.name == "cascade" and request.is_answered_whole:
            expected = (*request.tokens_NT.shape, self._manifest.model.d_model)
        found = None if reply.features_NTD is None else tuple(reply.features_NTD.shape)
        if found != expected:
            raise WireFormatError(f"features are {found}, expected {expected}")
