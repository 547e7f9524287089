"""The `BlockClient` port in memory: holders are asked by a method call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import TypeVar

import torch

from bt_p2p.chain.block_rpc import (
    BlockService,
    ForwardReply,
    ForwardRequest,
    HandedOn,
    Readiness,
    check_reply_shapes,
    check_reply_values,
)
from bt_p2p.chain.forwarding import Forwarder
from bt_p2p.chain.precision import log_prob_precision, normalised, rounded
from bt_p2p.chain.weights_offer import ChunkRequest, WeightsOffer, check_chunk, check_offer
from bt_p2p.errors import (
    BtError,
    BusyError,
    CacheLostError,
    PeerBusyError,
    PeerLostCacheError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnreachableError,
)
from bt_p2p.testing.faults import FaultKind, FaultPlan

T = TypeVar("T")


class InMemoryBlockClient:
    """Asks the services of a dictionary; see `chain.block_rpc.BlockClient`.

    Attributes:
        services: peer id -> the block it serves; peers may come and go.
        faults: what goes wrong.
        peer_id: who asks.
        calls: (peer id, block) of every forward request, in order.
        chunk_calls: (peer id, index) of every chunk of weights asked for, in order.
    """

    def __init__(
        self,
        services: MutableMapping[str, BlockService],
        faults: FaultPlan | None = None,
        *,
        peer_id: str = "client",
    ) -> None:
        """Wrap; the dictionary is looked up anew at every call."""
        self.services = services
        self.faults = FaultPlan() if faults is None else faults
        self.peer_id = peer_id
        self.calls: list[tuple[str, int]] = []
        self.chunk_calls: list[tuple[str, int]] = []
        self._forwarders: dict[str, tuple[BlockService, Forwarder]] = {}

    async def forward(
        self, peer_id: str, request: ForwardRequest, *, timeout_s: float
    ) -> ForwardReply:
        """Compute one block on some sequences."""
        self.calls.append((peer_id, request.block))
        reply, fault = await self._ask(
            peer_id,
            lambda service: self._forwarder(peer_id, service).forward(
                _copy_request(request), asker=self.peer_id
            ),
            timeout_s=timeout_s,
        )
        if fault == "wrong_shape":
            reply = replace(reply, log_probs_NPV=reply.log_probs_NPV[..., 1:])
        if fault == "not_finite":
            reply = replace(reply, log_probs_NPV=torch.full_like(reply.log_probs_NPV, math.nan))
        return _checked(reply, request)

    async def ready(self, peer_id: str, *, run_id: str, block: int, timeout_s: float) -> Readiness:
        """Ask whether a holder is there, and how busy; only lasting faults show."""

        async def ask(service: BlockService) -> Readiness:
            return service.readiness(run_id, block)

        readiness, _ = await self._ask(peer_id, ask, timeout_s=timeout_s, is_probe=True)
        return readiness

    async def hand_on(self, peer_id: str, handed: HandedOn, *, timeout_s: float) -> None:
        """Give another holder what its block needs; planned faults are left to its answers."""
        async with asyncio.timeout(timeout_s):
            await asyncio.sleep(0)
        service = self.services.get(peer_id)
        if service is None:
            raise PeerUnreachableError(
                f"peer …{peer_id[-6:]} cannot be reached: not known", peer_id=peer_id
            )
        self._forwarder(peer_id, service).receive(
            replace(
                handed,
                z_NPZ=rounded(handed.z_NPZ, handed.precision),
                features_NTD=rounded(handed.features_NTD, handed.precision),
            )
        )

    def _forwarder(self, peer_id: str, service: BlockService) -> Forwarder:
        found = self._forwarders.get(peer_id)
        if found is None or found[0] is not service:
            found = (service, Forwarder(service, self, peer_id))
            self._forwarders[peer_id] = found
        return found[1]

    async def weights_offers(
        self, peer_id: str, *, run_id: str, block: int, max_size_bytes: int, timeout_s: float
    ) -> tuple[WeightsOffer, ...]:
        """Which snapshots a holder can give; only lasting faults show."""
        offers, _ = await self._ask(
            peer_id,
            lambda service: service.weights_offers(run_id, block, asker=self.peer_id),
            timeout_s=timeout_s,
            is_probe=True,
        )
        for offer in offers:
            check_offer(offer, max_size_bytes=max_size_bytes)
        return offers

    async def weights_chunk(
        self, peer_id: str, request: ChunkRequest, *, timeout_s: float
    ) -> bytes:
        """One chunk of a snapshot."""
        self.chunk_calls.append((peer_id, request.index))
        data, fault = await self._ask(
            peer_id,
            lambda service: service.weights_chunk(
                request.run_id,
                request.block,
                request.offer.offer_id,
                request.index,
                asker=self.peer_id,
            ),
            timeout_s=timeout_s,
        )
        if fault == "wrong_shape":
            data = data[1:]
        if fault == "not_finite":
            data = bytes(len(data))
        check_chunk(request, data)
        return data

    async def _ask(
        self,
        peer_id: str,
        ask: Callable[[BlockService], Awaitable[T]],
        *,
        timeout_s: float,
        is_probe: bool = False,
    ) -> tuple[T, FaultKind | None]:
        """Call a holder; its own errors become refusals, as they do over the network."""
        name = f"peer …{peer_id[-6:]}"
        service = self.services.get(peer_id)
        if service is None:
            raise PeerUnreachableError(f"{name} cannot be reached: not known", peer_id=peer_id)
        fault = self.faults.lasting(peer_id) if is_probe else self.faults.take(peer_id)
        kind = None if fault is None else fault.kind
        if kind == "refuse":
            raise PeerRefusedError(f"{name} refused: it was made to", peer_id=peer_id)
        try:
            async with asyncio.timeout(timeout_s):
                if fault is not None and kind == "delay":
                    await asyncio.sleep(fault.delay_s)
                answer = await ask(service)
        except TimeoutError as exc:
            raise PeerTimeoutError(
                f"{name} did not answer within {timeout_s:g} s", peer_id=peer_id
            ) from exc
        except CacheLostError as exc:
            raise PeerLostCacheError(f"{name} refused: {exc}", peer_id=peer_id) from exc
        except BusyError as exc:
            raise PeerBusyError(f"{name} refused: {exc}", peer_id=peer_id) from exc
        except BtError as exc:
            raise PeerRefusedError(f"{name} refused: {exc}", peer_id=peer_id) from exc
        except (ValueError, RuntimeError, IndexError, TypeError) as exc:
            raise PeerRefusedError(
                f"{name} refused: the holder could not compute this request", peer_id=peer_id
            ) from exc
        if kind in ("drop", "truncate"):
            raise PeerUnreachableError(f"{name} broke the connection", peer_id=peer_id)
        return answer, kind


def _copy_request(request: ForwardRequest) -> ForwardRequest:
    """What the holder gets shares no memory with the caller."""
    return replace(
        request,
        tokens_NT=request.tokens_NT.clone(),
        z_NPZ=rounded(request.z_NPZ, request.precision),
        features_NTD=rounded(request.features_NTD, request.precision),
    )


def _checked(reply: ForwardReply, request: ForwardRequest) -> ForwardReply:
    """The reply as the caller gets it: finite distributions of the shape that was asked for."""
    precision = log_prob_precision(request.precision)
    log_probs_NPV = rounded(reply.log_probs_NPV, precision)
    assert log_probs_NPV is not None
    z_NPZ = rounded(reply.z_NPZ, request.precision)
    features_NTD = rounded(reply.features_NTD, request.precision)
    check_reply_shapes(
        request,
        log_probs=tuple(log_probs_NPV.shape),
        z=None if z_NPZ is None else tuple(z_NPZ.shape),
        features=None if features_NTD is None else tuple(features_NTD.shape),
    )
    check_reply_values(log_probs_NPV, z_NPZ, features_NTD)
    return replace(
        reply,
        log_probs_NPV=normalised(log_probs_NPV, precision),
        z_NPZ=z_NPZ,
        features_NTD=features_NTD,
    )
