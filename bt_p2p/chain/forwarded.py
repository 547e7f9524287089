"""Traversals in which the holders hand on to each other; the client's part. See `forwarding` for theirs."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from bt_p2p.chain.block_rpc import ForwardRequest, HandTo
from bt_p2p.chain.holders import Answer, Holders
from bt_p2p.chain.kept_context import KeptContext
from bt_p2p.errors import (
    PeerError,
    PeerLostCacheError,
    PeerTimeoutError,
    PeerUnreachableError,
    ProtocolError,
)
from bt_p2p.protocol.limits import LINK_ID_SIZE_BYTES

logger = logging.getLogger(__name__)

MAX_FORWARD_FAILURES = 3
"""After so many in a row the client carries what blocks need itself, to the end of the session."""


class ForwardedChain:
    """Asks the first holder of every block at once, and gives up at the first failure."""

    def __init__(self, holders: Holders, kept: KeptContext) -> None:
        """Use the session's holders and what they have kept."""
        self._holders = holders
        self._kept = kept
        self._num_failures = 0
        self._wait_s: float | None = None

    async def traverse(
        self, requests: Sequence[ForwardRequest], *, is_kept: bool
    ) -> list[Answer] | None:
        """Answers in the order of the blocks; None if it fails, or has failed too often.

        Args:
            requests: one for each block.
            is_kept: as in `ChainSession.traverse`.

        Raises:
            NoRouteError: a block has no holder.
        """
        if len(requests) < 2 or self._num_failures >= MAX_FORWARD_FAILURES:
            return None
        answers = await self._try(requests, is_kept=is_kept)
        if answers is None:
            self._num_failures += 1
            self._kept.forget_all()  # holders know more than we can repeat to others
        else:
            self._num_failures = 0
        return answers

    async def _try(
        self, requests: Sequence[ForwardRequest], *, is_kept: bool
    ) -> list[Answer] | None:
        """One traversal in which holders hand on to each other; None when it fails."""
        route = await self._holders.route()
        if not all(route.holders):  # one has failed since; whoever carries looks for others
            return None
        peer_ids = [holders[0].peer_id for holders in route.holders]
        for _ in range(2):
            sent = self._linked(requests, peer_ids, is_kept=is_kept)
            try:
                answers = await self._gather_in_order(sent, peer_ids)
            except PeerLostCacheError:
                self._kept.forget_all()  # everything again, to everybody
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
            asyncio.create_task(self._holders.ask(peer_id, request))
            for peer_id, request in zip(peer_ids, sent, strict=True)
        ]
        longest_s = 0.0
        try:
            while True:
                started_s = time.perf_counter()
                index = next((i for i, task in enumerate(tasks) if not task.done()), None)
                if index is None:
                    break
                patience_s = self._patience_s(sent[index].block)
                pending = {task for task in tasks if not task.done()}
                done, _ = await asyncio.wait(
                    pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                longest_s = max(longest_s, time.perf_counter() - started_s)
                for peer_id, task in zip(peer_ids, tasks, strict=True):
                    error = task.exception() if task in done else None
                    if isinstance(error, PeerUnreachableError | ProtocolError):
                        self._holders.give_up(peer_id, str(error))
                    if error is not None:  # a refusal may be the fault of the holder before
                        raise error
                if not done:
                    late_id = peer_ids[index]
                    self._holders.demote(late_id)
                    raise PeerTimeoutError(
                        f"peer …{late_id[-6:]} keeps the others waiting", peer_id=late_id
                    )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._wait_s = longest_s
        return [task.result() for task in tasks]

    def _patience_s(self, block: int) -> float | None:
        """How long to wait for the next answer of a forwarded traversal; None if nobody else is there."""
        return self._holders.patience_s(self._wait_s) if self._holders.num_spare(block) else None
