"""A whole model on this machine, asked as a swarm is, without a network."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from bt_p2p.chain.block_rpc import (
    BlockService,
    ForwardReply,
    ForwardRequest,
    HandedOn,
    Readiness,
)
from bt_p2p.chain.forwarding import Forwarder
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.chain.weights_offer import ChunkRequest, WeightsOffer
from bt_p2p.errors import BtError, CacheLostError, PeerLostCacheError, PeerRefusedError
from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.limits import LEASE_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview

_ASKER = "this machine"

T = TypeVar("T")


class LocalModel:
    """All blocks of a run, and a client that asks them; see `block_rpc.BlockClient`.

    Nothing is late here and nobody goes away, so timeouts are not looked at.
    """

    def __init__(
        self, manifest: RunManifest, weights: Sequence[Mapping[str, Tensor]], rounds: Sequence[int]
    ) -> None:
        """Copy the weights of every block, by name, and the rounds behind them."""
        self._manifest = manifest
        self._rounds = list(rounds)
        self._services: dict[str, BlockService] = {}
        self._forwarders: dict[str, Forwarder] = {}
        for block, (tensors, round_index) in enumerate(zip(weights, rounds, strict=True)):
            service = LocalBlockService(manifest, block)
            service.adopt(tensors, round_index)
            self._services[_peer_id(block)] = service
            self._forwarders[_peer_id(block)] = Forwarder(service, self, _peer_id(block))

    def overview(self) -> SwarmOverview:
        """A swarm in which every block has one holder."""
        leases = tuple(
            Lease(
                run_id=self._manifest.run_id,
                peer_id=_peer_id(block),
                boot_id=_ASKER,
                block=block,
                state="training",
                round_index=round_index,
                issued_at_s=0.0,
                expires_at_s=LEASE_TTL_S,
            )
            for block, round_index in enumerate(self._rounds)
        )
        return make_overview(self._manifest, LeaseView(leases=leases, num_invalid=0), now_s=0.0)

    async def forward(
        self,
        peer_id: str,
        request: ForwardRequest,
        *,
        timeout_s: float,  # noqa: ARG002  # the port has it
    ) -> ForwardReply:
        """Compute one block on some sequences."""
        forwarder = self._forwarders[peer_id]
        return await _told(peer_id, forwarder.forward(request, asker=_ASKER))

    async def ready(
        self,
        peer_id: str,
        *,
        run_id: str,
        block: int,
        timeout_s: float,  # noqa: ARG002  # the port has it
    ) -> Readiness:
        """How busy this machine is with a block."""
        return self._services[peer_id].readiness(run_id, block)

    async def hand_on(
        self,
        peer_id: str,
        handed: HandedOn,
        *,
        timeout_s: float,  # noqa: ARG002  # the port has it
    ) -> None:
        """Give another block what it needs."""
        self._forwarders[peer_id].receive(handed)

    async def weights_offers(
        self,
        peer_id: str,
        *,
        run_id: str,
        block: int,
        max_size_bytes: int,  # noqa: ARG002  # the port has them
        timeout_s: float,  # noqa: ARG002
    ) -> tuple[WeightsOffer, ...]:
        """Snapshots of a block, for a drafter."""
        service = self._services[peer_id]
        return await _told(peer_id, service.weights_offers(run_id, block, asker=_ASKER))

    async def weights_chunk(
        self,
        peer_id: str,
        request: ChunkRequest,
        *,
        timeout_s: float,  # noqa: ARG002  # the port has it
    ) -> bytes:
        """One chunk of a snapshot."""
        return await _told(
            peer_id,
            self._services[peer_id].weights_chunk(
                request.run_id, request.block, request.offer.offer_id, request.index, asker=_ASKER
            ),
        )


def _peer_id(block: int) -> str:
    return f"local-{block}"


async def _told(peer_id: str, answer: Awaitable[T]) -> T:
    """The answer, or its error as one of a peer."""
    try:
        return await answer
    except CacheLostError as exc:
        raise PeerLostCacheError(str(exc), peer_id=peer_id) from exc
    except BtError as exc:
        raise PeerRefusedError(str(exc), peer_id=peer_id) from exc
