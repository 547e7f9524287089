"""A small swarm in memory: blocks with holders, a client and a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from bt_p2p.chain.block_rpc import BlockService
from bt_p2p.chain.session import ChainSession
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_overview, tiny_service


class SmallSwarm:
    """Holders by block; the first one of a block is asked first.

    Attributes:
        num_look_ups: times the session read the swarm.
    """

    def __init__(self, manifest: RunManifest, num_holders: Sequence[int]) -> None:
        self.manifest = manifest
        identities = [tiny_identity(index) for index in range(sum(num_holders))]
        identities.sort(key=lambda identity: identity.peer_id)
        self.holders: list[list[str]] = []
        self.leases = []
        services: dict[str, BlockService] = {}
        for block, count in enumerate(num_holders):
            members = [identities.pop(0) for _ in range(count)]
            self.holders.append([member.peer_id for member in members])
            self.leases += [tiny_lease(manifest, member, block) for member in members]
            services |= {member.peer_id: tiny_service(manifest, block) for member in members}
        self.client = InMemoryBlockClient(services)
        self.faults = self.client.faults
        self.num_look_ups = 0
        self.session = ChainSession(manifest, self.client, self.look_up)

    def look_up(self) -> SwarmOverview:
        """What the leases say now."""
        self.num_look_ups += 1
        return tiny_overview(self.manifest, self.leases)

    def asked(self) -> Mapping[int, list[str]]:
        """Peers that were asked for each block, in order."""
        found: dict[int, list[str]] = {}
        for peer_id, block in self.client.calls:
            found.setdefault(block, []).append(peer_id)
        return found


@pytest.fixture
def small_swarm(monkeypatch) -> Callable[..., SmallSwarm]:
    """Makes a swarm of a manifest and numbers of holders; nobody is measured, so order is by id."""
    monkeypatch.setattr("bt_p2p.chain.holders.MAX_PROBES", 0)
    return SmallSwarm
