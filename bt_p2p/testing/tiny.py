"""The smallest valid things: manifests, identities, leases, weights and services."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from bt_p2p.chain.service import LocalBlockService
from bt_p2p.model.block import initial_block
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.lease import Lease, LeaseState, LeaseView
from bt_p2p.protocol.limits import LEASE_TTL_S
from bt_p2p.protocol.manifest import (
    ModelSpec,
    ObjectiveSpec,
    RoundSpec,
    RunManifest,
)
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from bt_p2p.testing.clock import START_S

TINY_MODEL = ModelSpec(d_model=16, num_heads=2, num_blocks=3, layers_per_block=1, context=16)
"""Three blocks that compute in a millisecond."""
TINY_OBJECTIVE = ObjectiveSpec(sweep_max_bytes=4, codebook_dim=8)


def tiny_manifest(
    name: str = "tiny",
    *,
    objective: str = "plain",
    num_blocks: int = 3,
    round_s: float = 4.0,
    seed: int = 0,
    outer_momentum: float = 0.0,
) -> RunManifest:
    """A run that needs next to nothing; another name or seed makes another run."""
    return RunManifest(
        name=name,
        seed=seed,
        model=TINY_MODEL.model_copy(update={"num_blocks": num_blocks}),
        objective=TINY_OBJECTIVE.model_copy(update={"name": objective}),
        rounds=RoundSpec(round_s=round_s, outer_momentum=outer_momentum),
    )


def tiny_identity(index: int = 0) -> PeerIdentity:
    """The same identity for the same index, on every machine. Public: never for a real peer."""
    seed = hashlib.sha256(f"bt-p2p test identity {index}".encode()).digest()
    return PeerIdentity(Ed25519PrivateKey.from_private_bytes(seed))


def tiny_lease(
    manifest: RunManifest,
    identity: PeerIdentity,
    block: int | None = 0,
    *,
    now_s: float = START_S,
    state: LeaseState = "training",
    round_index: int = 0,
) -> Lease:
    """A lease that is valid at `now_s`; change more with `model_copy(update=...)`."""
    return Lease(
        run_id=manifest.run_id,
        peer_id=identity.peer_id,
        boot_id="boot",
        block=block,
        state="joining" if block is None else state,
        round_index=round_index,
        issued_at_s=now_s,
        expires_at_s=now_s + LEASE_TTL_S,
    )


def tiny_overview(
    manifest: RunManifest, leases: Sequence[Lease], *, now_s: float = START_S
) -> SwarmOverview:
    """The swarm made of these leases."""
    return make_overview(manifest, LeaseView(leases=tuple(leases), num_invalid=0), now_s=now_s)


def tiny_weights(manifest: RunManifest, block: int) -> dict[str, Tensor]:
    """The initial weights of a block, by name."""
    return initial_block(manifest, block).weights()


def tiny_service(manifest: RunManifest, block: int, *, round_index: int = 0) -> LocalBlockService:
    """A holder's service that answers from the initial weights of a block."""
    service = LocalBlockService(manifest, block)
    service.adopt(tiny_weights(manifest, block), round_index)
    return service
