"""The holder's part of a forwarded traversal: take from the holder before, hand to the next.

The client asks all holders of a chain at once. Each waits for what its block needs, computes, passes on
what the next one needs, and answers the client with its own log-probabilities. So a traversal of n
blocks takes n + 1 trips between peers, where a client that carries everything itself needs 2n.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from torch import Tensor

from bt_p2p.chain.block_rpc import (
    BlockClient,
    BlockService,
    ForwardReply,
    ForwardRequest,
    HandedOn,
)
from bt_p2p.errors import ChainError, PeerError, ProtocolError, WireFormatError
from bt_p2p.protocol.limits import (
    LINK_ID_SIZE_BYTES,
    MAX_UNCLAIMED_SIZE_BYTES,
    READ_TIMEOUT_S,
    UNCLAIMED_TTL_S,
)

logger = logging.getLogger(__name__)

_ENTRY_BYTES = 1024
"""What anything kept costs besides its tensors, so that empty ones are bounded, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unclaimed:
    handed: HandedOn
    size_bytes: int
    expires_at_s: float


class Forwarder:
    """Stands between the network and a `BlockService`; use it on one event loop."""

    def __init__(self, service: BlockService, client: BlockClient, peer_id: str) -> None:
        """Wrap a service.

        Args:
            service: computes.
            client: reaches the next holder.
            peer_id: of this holder, which may hold the next block as well.
        """
        self._service = service
        self._client = client
        self._peer_id = peer_id
        self._awaited: dict[bytes, asyncio.Future[HandedOn]] = {}
        self._unclaimed: OrderedDict[bytes, _Unclaimed] = OrderedDict()
        self._handing: set[asyncio.Task[None]] = set()

    async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
        """As `BlockService.forward`; waits for its input, and does not wait for the next holder.

        Raises:
            ChainError: the holder before hands on nothing in time.
        """
        if request.takes_from is not None:
            if request.z_NPZ is not None or request.features_NTD is not None:
                raise WireFormatError(
                    "z and features come from the client and a holder; choose one"
                )
            handed = await self._take(request.takes_from)
            request = replace(request, z_NPZ=handed.z_NPZ, features_NTD=handed.features_NTD)
        reply = await self._service.forward(request, asker=asker)
        if request.is_answered_whole:
            return reply
        if request.hands_to is not None:
            handed = HandedOn(
                link_id=request.hands_to.link_id,
                z_NPZ=reply.z_NPZ,
                features_NTD=reply.features_NTD,
                precision=request.precision,
            )
            task = asyncio.create_task(self._hand_on(request.hands_to.peer_id, handed))
            self._handing.add(task)
            task.add_done_callback(self._handing.discard)
        return replace(reply, z_NPZ=None, features_NTD=None)

    def receive(self, handed: HandedOn) -> None:
        """Keep what another holder hands on until the client asks for it, or give it to who waits.

        Raises:
            WireFormatError: its link has no proper name, or it is too large to keep.
        """
        if len(handed.link_id) != LINK_ID_SIZE_BYTES:
            raise WireFormatError(f"a link has a name of {LINK_ID_SIZE_BYTES} bytes")
        waiting = self._awaited.pop(handed.link_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(handed)
            return
        size_bytes = _ENTRY_BYTES + _size_bytes(handed.z_NPZ) + _size_bytes(handed.features_NTD)
        if size_bytes > MAX_UNCLAIMED_SIZE_BYTES:
            raise WireFormatError(f"{size_bytes} bytes are too many to keep for a client")
        self._unclaimed[handed.link_id] = _Unclaimed(
            handed=handed,
            size_bytes=size_bytes,
            expires_at_s=time.monotonic() + UNCLAIMED_TTL_S,
        )
        self._forget_old()

    def _forget_old(self) -> None:
        total = sum(each.size_bytes for each in self._unclaimed.values())
        now_s = time.monotonic()
        for link_id, each in list(self._unclaimed.items()):  # the oldest first
            if each.expires_at_s > now_s and total <= MAX_UNCLAIMED_SIZE_BYTES:
                break
            total -= each.size_bytes
            del self._unclaimed[link_id]

    async def _take(self, link_id: bytes) -> HandedOn:
        self._forget_old()
        unclaimed = self._unclaimed.pop(link_id, None)
        if unclaimed is not None:
            return unclaimed.handed
        future = asyncio.get_running_loop().create_future()
        self._awaited[link_id] = future
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                handed: HandedOn = await future
        except TimeoutError as exc:
            raise ChainError("the holder before handed nothing on; ask another") from exc
        finally:
            self._awaited.pop(link_id, None)
        return handed

    async def _hand_on(self, peer_id: str, handed: HandedOn) -> None:
        """A failure is the next holder's silence to the client, who then asks others."""
        try:
            if peer_id == self._peer_id:
                self.receive(handed)
                return
            await self._client.hand_on(peer_id, handed, timeout_s=READ_TIMEOUT_S)
        except (PeerError, ProtocolError) as exc:
            logger.info("could not hand on: %s", exc)


def _size_bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()
