"""What every `BlockClient` promises of the weights of a block, in memory and over libp2p streams."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from bt_p2p.chain.weights_offer import ChunkRequest, WeightsOffer, make_offer
from bt_p2p.errors import (
    PeerBusyError,
    PeerError,
    PeerRefusedError,
    PeerTimeoutError,
    WireFormatError,
)
from bt_p2p.model.wire import encode_tensors
from bt_p2p.protocol.limits import MAX_DOWNLOADS
from bt_p2p.testing.tiny import tiny_manifest, tiny_service, tiny_weights
from tests.contract.wire import TIMEOUT_S, FailingService, Wire


def ask_offers(wire: Wire, peer_id: str, *, block: int = 1, max_size_bytes: int = 1 << 30, **kw):
    """What a holder of the tiny run offers."""
    return wire.run(
        wire.client.weights_offers(
            peer_id,
            run_id=kw.get("run_id", tiny_manifest().run_id),
            block=block,
            max_size_bytes=max_size_bytes,
            timeout_s=kw.get("timeout_s", TIMEOUT_S),
        )
    )


def chunk_of(offer: WeightsOffer, index: int) -> ChunkRequest:
    """A request for a chunk of block 1 of the tiny run."""
    return ChunkRequest(run_id=tiny_manifest().run_id, block=1, offer=offer, index=index)


def big_offer() -> WeightsOffer:
    """The offer of `BigService`."""
    return make_offer(BigService.data, 1)


class BigService(FailingService):
    """A holder of six hundred and a half kilobytes, of which it spoils one chunk."""

    data = torch.arange(600 << 10, dtype=torch.int64).to(torch.uint8).numpy().tobytes() + b"end"

    def __init__(self, spoiled: int | None = None):
        super().__init__(None)
        self._spoiled = spoiled

    async def weights_offers(self, run_id, block, *, asker):
        return (make_offer(self.data, 1),)

    async def weights_chunk(self, run_id, block, offer_id, index, *, asker):
        offer = make_offer(self.data, 1)
        assert offer.offer_id == offer_id
        data = self.data[offer.chunk_slice(index)]
        return b"?" + data[1:] if index == self._spoiled else data


def test_chunks_of_an_offer_are_the_weights_of_its_round(wire):
    """The very bytes the holder serves, also after it has gone on to another round."""
    manifest = tiny_manifest()
    service = tiny_service(manifest, 1, round_index=3)
    expected = encode_tensors(tiny_weights(manifest, 1))
    peer_id = wire.serve(service)
    [offer] = ask_offers(wire, peer_id, max_size_bytes=len(expected))
    assert make_offer(expected, 3) == offer

    service.adopt(tiny_weights(manifest, 2), 4)

    chunk = wire.run(wire.client.weights_chunk(peer_id, chunk_of(offer, 0), timeout_s=TIMEOUT_S))
    assert expected == chunk
    assert [4, 3] == [each.round_index for each in ask_offers(wire, peer_id)]


def test_weights_of_many_chunks_arrive_in_any_order(wire):
    """Each is checked by itself; the last one is short."""
    peer_id = wire.serve(BigService())
    [offer] = ask_offers(wire, peer_id)
    data = bytearray(offer.size_bytes)
    for index in reversed(range(offer.num_chunks)):
        asked = wire.client.weights_chunk(peer_id, chunk_of(offer, index), timeout_s=TIMEOUT_S)
        data[offer.chunk_slice(index)] = wire.run(asked)
    assert (3, BigService.data) == (offer.num_chunks, bytes(data))


def test_a_chunk_that_is_not_what_was_offered_is_a_wire_format_error(wire):
    """Only that one; its neighbours are good."""
    peer_id = wire.serve(BigService(spoiled=1))
    [offer] = ask_offers(wire, peer_id)
    wire.run(wire.client.weights_chunk(peer_id, chunk_of(offer, 0), timeout_s=TIMEOUT_S))
    with pytest.raises(WireFormatError, match="chunk 1 of 3 of the weights of round 1 does not"):
        wire.run(wire.client.weights_chunk(peer_id, chunk_of(offer, 1), timeout_s=TIMEOUT_S))
    wire.run(wire.client.weights_chunk(peer_id, chunk_of(offer, 2), timeout_s=TIMEOUT_S))


def test_weights_over_the_cap_are_not_taken(wire):
    """A holder cannot fill the caller's memory."""
    with pytest.raises(WireFormatError, match="over the 1000"):
        ask_offers(wire, wire.serve(BigService()), max_size_bytes=1000)


def test_a_snapshot_or_chunk_that_is_not_there_is_refused(wire):
    """As is another block."""
    service = tiny_service(tiny_manifest(), 1)
    peer_id = wire.serve(service)
    [offer] = ask_offers(wire, peer_id)
    bad = [
        (chunk_of(big_offer(), 0), "no longer kept"),
        (chunk_of(offer, 1), "no chunk 1"),
        (chunk_of(offer, -1), "no chunk -1"),
        (replace(chunk_of(offer, 0), block=2), "serves block 1"),
    ]
    for request, message in bad:
        with pytest.raises(PeerRefusedError, match=message):
            wire.run(wire.client.weights_chunk(peer_id, request, timeout_s=TIMEOUT_S))


def test_a_holder_that_gives_to_others_already_says_that_it_is_busy(wire):
    """The caller can tell it from other refusals, and asks another one."""
    service = tiny_service(tiny_manifest(), 1)
    peer_id = wire.serve(service)
    [offer] = ask_offers(wire, peer_id)
    for other in range(MAX_DOWNLOADS):
        asked = service.weights_chunk(
            tiny_manifest().run_id, 1, offer.offer_id, 0, asker=f"other {other}"
        )
        asyncio.run(asked)
    with pytest.raises(PeerBusyError, match="peers download from this one already"):
        ask_offers(wire, peer_id)
    with pytest.raises(PeerBusyError):
        wire.run(wire.client.weights_chunk(peer_id, chunk_of(offer, 0), timeout_s=TIMEOUT_S))


@pytest.mark.parametrize(
    ("error", "kind"), [(WireFormatError("no weights"), PeerRefusedError), (None, PeerTimeoutError)]
)
def test_weights_that_cannot_be_served_are_an_error_that_names_the_peer(wire, error, kind):
    """Refused or late, as for forward requests."""
    peer_id = wire.serve(FailingService(error))
    with pytest.raises(kind) as caught:
        ask_offers(wire, peer_id, timeout_s=0.1 if error is None else TIMEOUT_S)
    assert isinstance(caught.value, PeerError)
    assert peer_id == caught.value.peer_id
