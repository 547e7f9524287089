"""A run in memory behind the HTTP interface, and a client of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from bt_p2p.chain.block_rpc import BlockService
from bt_p2p.clock import SystemClock
from bt_p2p.errors import SwarmError
from bt_p2p.protocol.overview import SwarmOverview
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import (
    tiny_identity,
    tiny_lease,
    tiny_manifest,
    tiny_overview,
    tiny_service,
)
from node.draft import DraftBlock
from node.serve.app import make_app
from node.serve.completions import CompletionLimits
from node.serve.served_run import ServedRun

MANIFEST = tiny_manifest(num_blocks=2)
"""One run for all tests here; nothing changes it."""


class Site:
    """One holder for each block, and the application over them.

    Attributes:
        is_down: while true, the swarm cannot be read.
    """

    def __init__(self, api_key: str | None = None, **limits: object) -> None:
        identities = [tiny_identity(index) for index in range(2)]
        self.holders = [identity.peer_id for identity in identities]
        self.leases = [
            tiny_lease(MANIFEST, identity, block) for block, identity in enumerate(identities)
        ]
        services: dict[str, BlockService] = {
            peer_id: tiny_service(MANIFEST, block) for block, peer_id in enumerate(self.holders)
        }
        self.is_down = False
        self.num_look_ups = 0
        self.blocks = InMemoryBlockClient(services)
        self.faults = self.blocks.faults
        run = ServedRun(
            manifest=MANIFEST,
            client=self.blocks,
            look_up=self.look_up,
            precision="float32",
            draft_block=DraftBlock(MANIFEST, self.blocks, self.look_up, SystemClock()),
        )
        self.app = make_app(run, CompletionLimits(**limits), api_key=api_key)
        self.http = TestClient(self.app, base_url="http://127.0.0.1:8000")

    def look_up(self) -> SwarmOverview:
        """What the leases say now."""
        self.num_look_ups += 1
        if self.is_down:
            raise SwarmError("reading the swarm failed: it was made to be down")
        return tiny_overview(MANIFEST, self.leases)

    def ask(self, **fields: object):
        """Post a completion request with a prompt and a seed."""
        body = {"model": MANIFEST.run_id, "prompt": "the ", "seed": 1, **fields}
        return self.http.post("/v1/completions", json=body)


@pytest.fixture
def site() -> Callable[..., Site]:
    """Makes a site."""
    return Site
