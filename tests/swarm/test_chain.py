"""A chain of holders in other processes answers exactly what the blocks answer here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.manifest import MASK_TOKEN, RunManifest
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest, tiny_overview

pytestmark = pytest.mark.swarm

ANSWER_TIMEOUT_S = 20.0


@pytest.fixture
def visitor(processes) -> Iterator:
    """A client in this process, and a way to start holders it can reach."""
    from bt_p2p.protocol.address import parse_peer_addresses
    from bt_p2p.swarm.process import PeerOptions, start_peer

    first = processes()
    peer = start_peer(
        PeerOptions(initial_peers=tuple(parse_peer_addresses(first.addresses)), is_client=True)
    )
    yield peer, [first, processes(), processes()]
    peer.stop()


def lease_of(manifest: RunManifest, peer_id: str, block: int) -> Lease:
    """What a holder in another process would announce."""
    lease = tiny_lease(manifest, tiny_identity(block), block, now_s=START_S)
    return lease.model_copy(update={"peer_id": peer_id})


@pytest.mark.parametrize("objective", ["plain", "cascade", "diffusion"])
def test_remote_blocks_answer_exactly_as_local_ones(visitor, objective: str) -> None:
    """`read` and `advance`, bit for bit, over real streams."""
    from bt_p2p.chain.session import ChainSession
    from bt_p2p.model.block import initial_block
    from bt_p2p.objective.registry import make_objective
    from bt_p2p.swarm.block_rpc import HivemindBlockClient

    manifest = tiny_manifest(objective=objective)
    client, holders = visitor
    for block, holder in enumerate(holders):
        holder.ask("serve", manifest=manifest.model_dump(), block=block, round_index=3)
    leases = [lease_of(manifest, peer.peer_id, block) for block, peer in enumerate(holders)]
    session = ChainSession(
        manifest, HivemindBlockClient(client.p2p), lambda: tiny_overview(manifest, leases)
    )
    tokens = torch.tensor([[*b"the cat", MASK_TOKEN, MASK_TOKEN], [*b"sat on t", MASK_TOKEN]])
    blocks = [initial_block(manifest, block).eval() for block in range(3)]
    objectives = [make_objective(manifest, block) for block in range(3)]
    z = objectives[0].initial_noise(2, 4, torch.Generator().manual_seed(1))

    read = client.loop.run(
        session.traverse(tokens, start=0, mode="read"), timeout_s=ANSWER_TIMEOUT_S
    )
    advanced = client.loop.run(
        session.traverse(tokens, start=5, mode="advance", z_NPZ=z), timeout_s=ANSWER_TIMEOUT_S
    )

    with torch.inference_mode():
        features, read_features = None, None
        for block in range(3):
            local = objectives[block].read(blocks[block], tokens, 0, read_features)
            read_features = local.features_NTD
            assert torch.equal(local.log_probs_NPV, read.per_block_log_probs[block])
            step = objectives[block].advance(blocks[block], tokens, 5, z, features)
            z, features = step.z_NPZ, step.features_NTD
            assert torch.equal(step.log_probs_NPV, advanced.per_block_log_probs[block])
    assert [objective == "cascade", objective != "plain"] == [
        read.is_forwarded,
        advanced.is_forwarded,
    ]
    assert [3, 3, 3] == [hop.round_index for hop in read.hops]


def test_a_killed_holder_is_replaced_by_another_replica(visitor) -> None:
    """The answer is the same, and the failure is named."""
    from bt_p2p.chain.session import ChainSession
    from bt_p2p.swarm.block_rpc import HivemindBlockClient

    manifest = tiny_manifest(num_blocks=1)
    client, holders = visitor
    pair = holders[1:]
    for holder in pair:
        holder.ask("serve", manifest=manifest.model_dump(), block=0, round_index=0)
    leases = [lease_of(manifest, holder.peer_id, 0) for holder in pair]
    session = ChainSession(
        manifest, HivemindBlockClient(client.p2p), lambda: tiny_overview(manifest, leases)
    )
    tokens = torch.tensor([[*b"hello"]])

    def ask():
        return client.loop.run(
            session.traverse(tokens, start=0, mode="read"), timeout_s=ANSWER_TIMEOUT_S
        )

    before = ask()
    victim = next(holder for holder in pair if holder.peer_id == before.hops[0].peer_id)
    victim.end()
    after = ask()

    assert torch.equal(before.log_probs_NPV, after.log_probs_NPV)
    assert before.hops[0].peer_id != after.hops[0].peer_id
    assert 1 == len(after.failed_peers)
    assert victim.peer_id[-6:] in after.failed_peers[0]
