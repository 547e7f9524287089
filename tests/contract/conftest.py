"""What contract tests share; the real peers are started once, when first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bt_p2p.chain.block_rpc import BlockService
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import tiny_identity
from tests.contract.wire import ASKER, TIMEOUT_S, Wire


@pytest.fixture(scope="session")
def hivemind_peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list]:
    """Three peers that know each other."""
    from tests.swarm.local_peers import local_swarm

    with local_swarm(tmp_path_factory.mktemp("peers"), 3) as peers:
        yield peers


@pytest.fixture(params=["memory", pytest.param("hivemind", marks=pytest.mark.swarm)])
def wire(request) -> Iterator[Wire]:
    """One caller and one holder."""
    if request.param == "memory":
        services: dict[str, BlockService] = {}
        holder = tiny_identity(0).peer_id

        def serve(service: BlockService) -> str:
            services[holder] = service
            return holder

        async def bounded(coroutine):
            async with asyncio.timeout(TIMEOUT_S):
                return await coroutine

        client = InMemoryBlockClient(services, peer_id=ASKER)
        yield Wire(
            client=client,
            caller_id=ASKER,
            serve=serve,
            run=lambda coroutine: asyncio.run(bounded(coroutine)),
        )
        return
    from bt_p2p.swarm.block_rpc import HivemindBlockClient, HivemindBlockServer

    caller, holder_peer, _ = (peer.swarm for peer in request.getfixturevalue("hivemind_peers"))
    servers: list[HivemindBlockServer] = []

    def serve_real(service: BlockService) -> str:
        server = HivemindBlockServer(holder_peer.p2p, service)
        holder_peer.loop.run(server.start(), timeout_s=TIMEOUT_S)
        servers.append(server)
        return holder_peer.peer_id

    yield Wire(
        client=HivemindBlockClient(caller.p2p),
        caller_id=caller.peer_id,
        serve=serve_real,
        run=lambda coroutine: caller.loop.run(coroutine, timeout_s=TIMEOUT_S),
    )
    for server in servers:
        holder_peer.loop.run(server.stop(), timeout_s=TIMEOUT_S)
