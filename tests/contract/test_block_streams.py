"""Streams between peers are used again, and what becomes of them is not the caller's concern."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
import torch

from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest
from bt_p2p.testing.tiny import tiny_manifest, tiny_service

pytestmark = pytest.mark.swarm

TIMEOUT_S = 10.0
MANIFEST = tiny_manifest(num_blocks=1)
REQUEST = ForwardRequest(
    run_id=MANIFEST.run_id,
    block=0,
    mode="read",
    tokens_NT=torch.tensor([[1, 2, 3]]),
    start=2,
)
LARGE = replace(REQUEST, tokens_NT=torch.ones(6, 3, dtype=torch.int64))


class Counting:
    """A service that counts, and may take its time."""

    def __init__(self) -> None:
        self._service = tiny_service(MANIFEST, 0)
        self.is_slow = False
        self.num_cancelled = 0

    async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
        if self.is_slow:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise
        return await self._service.forward(request, asker=asker)

    def readiness(self, run_id, block):
        return self._service.readiness(run_id, block)


@pytest.fixture
def pair(hivemind_peers):
    """A caller's client, a holder's server and its service, and how to run on either loop."""
    from bt_p2p.swarm.block_rpc import HivemindBlockClient, HivemindBlockServer

    caller, holder = (peer.swarm for peer in hivemind_peers[:2])
    service = Counting()
    server = HivemindBlockServer(holder.p2p, service)
    holder.loop.run(server.start(), timeout_s=TIMEOUT_S)
    client = HivemindBlockClient(caller.p2p)

    def ask(timeout_s: float = TIMEOUT_S) -> ForwardReply:
        return caller.loop.run(
            client.forward(holder.peer_id, REQUEST, timeout_s=timeout_s), timeout_s=TIMEOUT_S
        )

    yield client, server, service, ask, caller, holder
    holder.loop.run(server.stop(), timeout_s=TIMEOUT_S)


def wait_until(condition) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_one_request_after_another_takes_one_stream(pair) -> None:
    """Small ones at the same moment share it; large ones have one each."""
    _, server, _, ask, caller, holder = pair
    for _ in range(5):
        ask()
    client = pair[0]
    assert 1 == server._num_streams == len(client._idle[holder.peer_id])

    async def together(request: ForwardRequest) -> None:
        calls = [client.forward(holder.peer_id, request, timeout_s=TIMEOUT_S) for _ in range(3)]
        await asyncio.gather(*calls)

    caller.loop.run(together(REQUEST), timeout_s=TIMEOUT_S)
    assert 1 == server._num_streams == len(client._idle[holder.peer_id])
    caller.loop.run(together(LARGE), timeout_s=TIMEOUT_S)
    assert 3 == server._num_streams == len(client._idle[holder.peer_id])


def test_a_stream_that_the_holder_closed_is_replaced(pair) -> None:
    """It had been idle for too long for the holder, not for the client."""
    _, server, _, ask, _, _ = pair
    server.idle_stream_s = 0.1
    ask()
    wait_until(lambda: server._num_streams == 0)
    ask()
    assert 1 == server._num_streams


def test_a_stream_that_broke_unnoticed_is_replaced(pair) -> None:
    """The request is made again on a new one."""
    client, _, _, ask, caller, holder = pair
    ask()

    async def break_it() -> None:
        client._idle[holder.peer_id][0].writer.transport.abort()

    caller.loop.run(break_it(), timeout_s=TIMEOUT_S)
    ask()


def test_a_client_that_gives_up_frees_the_holder(pair) -> None:
    """The holder does not go on computing for nobody."""
    from bt_p2p.errors import PeerTimeoutError

    _, server, service, ask, _, _ = pair
    service.is_slow = True
    with pytest.raises(PeerTimeoutError):
        ask(timeout_s=0.3)
    wait_until(lambda: service.num_cancelled == 1 and server._num_streams == 0)
    service.is_slow = False
    ask()


def test_idle_streams_are_closed_in_time(pair, monkeypatch) -> None:
    """Both sides forget them."""
    monkeypatch.setattr("bt_p2p.swarm.block_rpc.IDLE_STREAM_S", 0.4)
    client, server, _, ask, _, _ = pair
    ask()
    wait_until(lambda: not client._idle and server._num_streams == 0)


def test_too_many_streams_or_requests_are_refused(pair, monkeypatch) -> None:
    """In words; later requests are answered."""
    from bt_p2p.errors import PeerRefusedError

    _, _, _, ask, _, _ = pair
    for name in ("MAX_OPEN_STREAMS", "MAX_CONCURRENT_REQUESTS"):
        with monkeypatch.context() as patch:
            patch.setattr(f"bt_p2p.swarm.block_rpc.{name}", 0)
            with pytest.raises(PeerRefusedError, match="busy"):
                ask()
    ask()
