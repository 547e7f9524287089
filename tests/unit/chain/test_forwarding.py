"""What a holder keeps between the holder before it and the client."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from bt_p2p.chain.block_rpc import ForwardRequest, HandedOn, HandTo
from bt_p2p.chain.forwarding import Forwarder
from bt_p2p.errors import ChainError, PeerUnreachableError, WireFormatError
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import tiny_manifest, tiny_service

CASCADE = tiny_manifest(num_blocks=2, objective="cascade")
WIDTH = CASCADE.model.d_model
ASKER = "somebody"
LINK = b"l" * 16
ASKED = ForwardRequest(
    run_id=CASCADE.run_id,
    block=1,
    mode="read",
    tokens_NT=torch.tensor([[1, 2, 3]]),
    start=2,
    takes_from=LINK,
)


class Recorder(InMemoryBlockClient):
    """Keeps what is handed on, or cannot reach anybody."""

    def __init__(self, *, is_reachable: bool = True) -> None:
        super().__init__({})
        self.handed: list[tuple[str, HandedOn]] = []
        self._is_reachable = is_reachable

    async def hand_on(self, peer_id, handed, *, timeout_s):
        if not self._is_reachable:
            raise PeerUnreachableError("no route", peer_id=peer_id)
        self.handed.append((peer_id, handed))


def handed_on(link_id: bytes = LINK, num_tokens: int = 3) -> HandedOn:
    return HandedOn(link_id=link_id, features_NTD=torch.ones(1, num_tokens, WIDTH))


@pytest.mark.parametrize("is_reachable", [True, False])
def test_the_client_gets_its_answer_whatever_becomes_of_the_next_holder(is_reachable) -> None:
    """Features go on to the next, and not into the reply."""
    client = Recorder(is_reachable=is_reachable)
    forwarder = Forwarder(tiny_service(CASCADE, 0), client, "own")
    request = replace(
        ASKED, block=0, takes_from=None, hands_to=HandTo(peer_id="next", link_id=LINK)
    )

    async def ask():
        reply = await forwarder.forward(request, asker=ASKER)
        await asyncio.sleep(0)
        return reply

    reply = asyncio.run(ask())
    assert (None, (1, 1, 256)) == (reply.features_NTD, tuple(reply.log_probs_NPV.shape))
    expected = asyncio.run(tiny_service(CASCADE, 0).forward(request, asker=ASKER)).features_NTD
    if is_reachable:
        [(peer_id, handed)] = client.handed
        assert ("next", LINK) == (peer_id, handed.link_id)
        assert torch.equal(expected, handed.features_NTD)


def test_a_holder_does_not_wait_for_ever(monkeypatch) -> None:
    """Its input never comes."""
    monkeypatch.setattr("bt_p2p.chain.forwarding.READ_TIMEOUT_S", 0.05)
    forwarder = Forwarder(tiny_service(CASCADE, 1), Recorder(), "own")
    with pytest.raises(ChainError, match="handed nothing on"):
        asyncio.run(forwarder.forward(ASKED, asker=ASKER))
    assert not forwarder._awaited


def test_input_of_both_kinds_is_refused() -> None:
    """It would be unclear which counts."""
    forwarder = Forwarder(tiny_service(CASCADE, 1), Recorder(), "own")
    request = replace(ASKED, features_NTD=torch.ones(1, 3, WIDTH))
    with pytest.raises(WireFormatError, match="choose one"):
        asyncio.run(forwarder.forward(request, asker=ASKER))


def test_what_nobody_asks_for_is_dropped_after_a_while(monkeypatch) -> None:
    """And what is handed on under one link is given out once."""
    monkeypatch.setattr("bt_p2p.chain.forwarding.READ_TIMEOUT_S", 0.05)
    forwarder = Forwarder(tiny_service(CASCADE, 1), Recorder(), "own")
    forwarder.receive(handed_on())
    asyncio.run(forwarder.forward(ASKED, asker=ASKER))
    with pytest.raises(ChainError):
        asyncio.run(forwarder.forward(ASKED, asker=ASKER))
    monkeypatch.setattr("bt_p2p.chain.forwarding.UNCLAIMED_TTL_S", 0.0)
    forwarder.receive(handed_on())
    with pytest.raises(ChainError):
        asyncio.run(forwarder.forward(ASKED, asker=ASKER))


def test_memory_for_strangers_is_bounded(monkeypatch) -> None:
    """The oldest goes first; what is too large alone is refused."""
    size_bytes = 1024 + 4 * 3 * WIDTH
    monkeypatch.setattr("bt_p2p.chain.forwarding.MAX_UNCLAIMED_SIZE_BYTES", 2 * size_bytes)
    monkeypatch.setattr("bt_p2p.chain.forwarding.READ_TIMEOUT_S", 0.05)
    forwarder = Forwarder(tiny_service(CASCADE, 1), Recorder(), "own")
    names = [bytes([index]) * 16 for index in range(3)]
    for name in names:
        forwarder.receive(handed_on(name))
    with pytest.raises(ChainError):
        asyncio.run(forwarder.forward(replace(ASKED, takes_from=names[0]), asker=ASKER))
    for name in names[1:]:
        asyncio.run(forwarder.forward(replace(ASKED, takes_from=name), asker=ASKER))
    with pytest.raises(WireFormatError, match="too many to keep"):
        forwarder.receive(handed_on(num_tokens=60))


def test_empty_things_cost_memory_too(monkeypatch) -> None:
    """A stranger cannot have any number of them kept."""
    monkeypatch.setattr("bt_p2p.chain.forwarding.MAX_UNCLAIMED_SIZE_BYTES", 10 * 1024)
    forwarder = Forwarder(tiny_service(CASCADE, 1), Recorder(), "own")
    for index in range(50):
        forwarder.receive(HandedOn(link_id=index.to_bytes(16, "big")))
    assert 10 == len(forwarder._unclaimed)


def test_a_holder_of_the_next_block_too_hands_on_to_itself() -> None:
    """No peer can dial itself."""
    client = Recorder(is_reachable=False)
    first = Forwarder(tiny_service(CASCADE, 0), client, "own")
    request = replace(ASKED, block=0, takes_from=None, hands_to=HandTo(peer_id="own", link_id=LINK))

    async def ask() -> HandedOn:
        await first.forward(request, asker=ASKER)
        return await first._take(LINK)

    assert asyncio.run(ask()).features_NTD is not None
