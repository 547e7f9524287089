"""A newcomer takes weights from a replica that is ahead, whole and valid, or says why not."""

from __future__ import annotations

import asyncio

import pytest
import torch

from bt_p2p.chain.service import LocalBlockService
from bt_p2p.errors import SwarmError
from bt_p2p.model.wire import TensorSpec
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import (
    tiny_identity,
    tiny_lease,
    tiny_manifest,
    tiny_overview,
    tiny_weights,
)
from node.sync import SyncedWeights, donors, fetch_weights

ME = tiny_identity(0)


def lease_of(manifest: RunManifest, index: int, round_index: int, state: str = "training") -> Lease:
    lease = tiny_lease(manifest, tiny_identity(index), round_index=round_index)
    return lease.model_copy(update={"state": state})


def service_at(manifest: RunManifest, value: float, round_index: int) -> LocalBlockService:
    service = LocalBlockService(manifest, 0)
    weights = {name: torch.full_like(t, value) for name, t in tiny_weights(manifest, 0).items()}
    service.adopt(weights, round_index)
    return service


def fetch(
    manifest: RunManifest,
    services: dict[int, LocalBlockService],
    candidates: list[Lease],
    min_round_index: int = 1,
) -> SyncedWeights:
    client = InMemoryBlockClient(
        {tiny_identity(index).peer_id: service for index, service in services.items()}
    )
    expected: dict[str, TensorSpec] = {
        name: (tuple(tensor.shape), tensor.dtype)
        for name, tensor in tiny_weights(manifest, 0).items()
    }
    return asyncio.run(
        fetch_weights(client, candidates, expected=expected, min_round_index=min_round_index)
    )


def test_donors_are_other_replicas_ahead_newest_first() -> None:
    """Oneself, those behind, and those still joining are no donors."""
    manifest = tiny_manifest()
    leases = [
        tiny_lease(manifest, ME, round_index=9),
        lease_of(manifest, 1, 5),
        lease_of(manifest, 2, 7),
        lease_of(manifest, 3, 2),
        lease_of(manifest, 4, 8, state="joining"),
    ]
    overview = tiny_overview(manifest, leases)

    found = donors(overview, block=0, peer_id=ME.peer_id, round_index=2)

    assert [7, 5] == [lease.round_index for lease in found]


def test_weights_of_the_first_good_replica_are_taken() -> None:
    """Round and values are those of the replica."""
    manifest = tiny_manifest()

    synced = fetch(manifest, {1: service_at(manifest, 0.5, 3)}, [lease_of(manifest, 1, 3)])

    assert (3, tiny_identity(1).peer_id) == (synced.round_index, synced.peer_id)
    assert all(bool((tensor == 0.5).all()) for tensor in synced.weights.values())


def test_weights_that_are_not_finite_are_refused_and_the_next_replica_is_asked() -> None:
    """One bad replica does not keep a newcomer out."""
    manifest = tiny_manifest()
    services = {
        1: service_at(manifest, float("nan"), 4),
        2: service_at(manifest, 0.5, 3),
    }

    synced = fetch(manifest, services, [lease_of(manifest, 1, 4), lease_of(manifest, 2, 3)])

    assert tiny_identity(2).peer_id == synced.peer_id


def test_without_a_good_replica_each_is_named_with_its_reason() -> None:
    """Nothing is adopted."""
    manifest = tiny_manifest()
    services = {1: service_at(manifest, float("nan"), 4), 2: service_at(manifest, 0.5, 0)}

    with pytest.raises(SwarmError) as caught:
        fetch(manifest, services, [lease_of(manifest, 1, 4), lease_of(manifest, 2, 3)])

    assert "not finite" in str(caught.value)
    assert "serves only round 0" in str(caught.value)
