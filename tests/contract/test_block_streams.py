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
    assert 1 == server.quotas.num_streams == len(client._idle[holder.peer_id])

    async def together(request: ForwardRequest) -> None:
        calls = [client.forward(holder.peer_id, request, timeout_s=TIMEOUT_S) for _ in range(3)]
        await asyncio.gather(*calls)

    caller.loop.run(together(REQUEST), timeout_s=TIMEOUT_S)
    assert 1 == server.quotas.num_streams == len(client._idle[holder.peer_id])
    caller.loop.run(together(LARGE), timeout_s=TIMEOUT_S)
    assert 3 == server.quotas.num_streams == len(client._idle[holder.peer_id])


def test_a_stream_that_the_holder_closed_is_replaced(pair) -> None:
    """It had been idle for too long for the holder, not for the client."""
    _, server, _, ask, _, _ = pair
    server.idle_stream_s = 0.1
    ask()
    wait_until(lambda: server.quotas.num_streams == 0)
    ask()
    assert 1 == server.quotas.num_streams


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
    wait_until(lambda: service.num_cancelled == 1 and server.quotas.num_streams == 0)
    service.is_slow = False
    ask()


def test_idle_streams_are_closed_in_time(pair, monkeypatch) -> None:
    """Both sides forget them."""
    monkeypatch.setattr("bt_p2p.swarm.block_rpc.IDLE_STREAM_S", 0.4)
    client, server, _, ask, _, _ = pair
    ask()
    wait_until(lambda: not client._idle and server.quotas.num_streams == 0)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_streams": 0}, "busy: 0 streams open"),
        ({"max_requests": 0}, "busy: 0 requests at once"),
        ({"max_bodies_size_bytes": 0}, "busy: your requests take 0 bytes"),
        ({"bytes_per_s": 1.0}, "busy: over 1 bytes of yours in a second"),
    ],
)
def test_what_is_over_a_quota_is_refused_in_words(hivemind_peers, limits, reason) -> None:
    """As busy, so that the client asks another holder."""
    from bt_p2p.errors import PeerBusyError
    from bt_p2p.swarm.block_rpc import HivemindBlockClient, HivemindBlockServer
    from bt_p2p.swarm.quotas import QuotaLimits

    caller, holder = (peer.swarm for peer in hivemind_peers[:2])
    server = HivemindBlockServer(holder.p2p, Counting(), QuotaLimits(**limits))
    holder.loop.run(server.start(), timeout_s=TIMEOUT_S)
    try:
        client = HivemindBlockClient(caller.p2p)
        asking = client.forward(holder.peer_id, REQUEST, timeout_s=TIMEOUT_S)
        with pytest.raises(PeerBusyError, match=reason):
            caller.loop.run(asking, timeout_s=TIMEOUT_S)
    finally:
        holder.loop.run(server.stop(), timeout_s=TIMEOUT_S)


def test_a_peer_that_sends_rubbish_is_refused_and_the_others_are_not(pair, hivemind_peers) -> None:
    """It hears why, and has taken nothing from them."""
    from bt_p2p.errors import PeerBusyError, PeerRefusedError
    from bt_p2p.protocol.limits import MAX_MALFORMED_MESSAGES
    from bt_p2p.swarm.block_rpc import HivemindBlockClient
    from bt_p2p.swarm.streams import Frame

    _, server, _, ask, _, holder = pair
    hostile = hivemind_peers[2].swarm
    client = HivemindBlockClient(hostile.p2p)

    def send_rubbish() -> None:
        rubbish = client._ask(holder.peer_id, Frame(header={"op": "?"}), timeout_s=TIMEOUT_S)
        hostile.loop.run(rubbish, timeout_s=TIMEOUT_S)

    for _ in range(MAX_MALFORMED_MESSAGES + 1):
        with pytest.raises(PeerRefusedError, match="is not known"):
            send_rubbish()
    with pytest.raises(PeerBusyError, match=r"refused for .* malformed messages of yours"):
        send_rubbish()
    ask()
    wait_until(lambda: server.quotas.size_bytes == server.quotas.num_requests == 0)
