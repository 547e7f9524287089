"""How a newcomer, or a node that was away, gets its block's current weights from a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bt_p2p.chain.block_rpc import BlockClient, Progress
from bt_p2p.errors import PeerError, ProtocolError, SwarmError
from bt_p2p.model.wire import TensorSpec, decode_tensors, max_encoded_size_bytes
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import READ_TIMEOUT_S
from bt_p2p.protocol.overview import SwarmOverview


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncedWeights:
    """Weights of a replica, checked."""

    weights: dict[str, Tensor]
    round_index: int
    peer_id: str


def donors(overview: SwarmOverview, *, block: int, peer_id: str, round_index: int) -> list[Lease]:
    """Other replicas of a block that are ahead of a round, the newest first."""
    return [
        lease
        for lease in overview.blocks[block].holders
        if lease.peer_id != peer_id
        and lease.state == "training"
        and lease.round_index > round_index
    ]


async def fetch_weights(
    client: BlockClient,
    candidates: list[Lease],
    *,
    expected: Mapping[str, TensorSpec],
    min_round_index: int,
    progress: Progress | None = None,
) -> SyncedWeights:
    """Download a block from the first replica that gives it whole, valid and new enough.

    Raises:
        SwarmError: none does; names each with its reason.
    """
    reasons: list[str] = []
    for lease in candidates:
        assert lease.block is not None
        try:
            reply = await client.fetch_weights(
                lease.peer_id,
                run_id=lease.run_id,
                block=lease.block,
                max_size_bytes=max_encoded_size_bytes(expected),
                timeout_s=READ_TIMEOUT_S,
                progress=progress,
            )
            if reply.round_index < min_round_index:
                reasons.append(f"…{lease.peer_id[-6:]}: serves only round {reply.round_index}")
                continue
            weights = await asyncio.to_thread(decode_tensors, reply.data, expected)
        except (PeerError, ProtocolError) as exc:
            reasons.append(f"…{lease.peer_id[-6:]}: {exc}")
            continue
        return SyncedWeights(weights=weights, round_index=reply.round_index, peer_id=lease.peer_id)
    raise SwarmError(
        f"no replica gave its weights ({'; '.join(reasons) or 'none is ahead'}); try again later"
    )
