"""bt_p2p.swarm.weights_rpc: offers and chunks from strangers, without hivemind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bt_p2p.chain.weights_offer import ChunkRequest, make_offer
from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.limits import WEIGHTS_CHUNK_SIZE_BYTES
from bt_p2p.swarm.streams import Frame
from bt_p2p.swarm.weights_rpc import (
    ask_chunk,
    decode_chunk,
    decode_offers,
    encode_offers,
    offer_and_index,
)

BIG = make_offer(bytes(2 * WEIGHTS_CHUNK_SIZE_BYTES + 1), 4)
SMALL = make_offer(b"weights", 3)
LIMIT = 3 * WEIGHTS_CHUNK_SIZE_BYTES
FRAME = encode_offers([BIG, SMALL])


def test_offers_survive_the_journey() -> None:
    """Several, of different sizes, with their ids."""
    found = decode_offers(FRAME, max_size_bytes=LIMIT)
    assert (BIG, SMALL) == found
    assert BIG.offer_id == found[0].offer_id


@pytest.mark.parametrize(
    "offers",
    [None, [], [[1, 7]] * 4, [[1]], [["1", 7]], [[1, 7.0]], [[1, -7]], [[1, 2**70]], [{}], "x"],
    ids=str,
)
def test_malformed_offers_are_wire_format_errors(offers) -> None:
    """No, too many, or of other types."""
    with pytest.raises(WireFormatError):
        decode_offers(Frame(header={"ok": True, "offers": offers}), max_size_bytes=LIMIT)


@pytest.mark.parametrize("body", [b"", FRAME.body[:-1], FRAME.body[32:], FRAME.body + b"x"])
def test_hashes_that_do_not_fit_the_sizes_are_wire_format_errors(body) -> None:
    """Missing, cut, or too many."""
    with pytest.raises(WireFormatError):
        decode_offers(replace(FRAME, body=body), max_size_bytes=LIMIT)


@pytest.mark.parametrize(
    "changes", [{"offer": "text"}, {"offer": None}, {"index": True}, {"index": 1.0}], ids=str
)
def test_a_malformed_request_for_a_chunk_is_a_wire_format_error(changes) -> None:
    """What is well formed names the offer and the chunk."""
    request = ChunkRequest(run_id="r", block=1, offer=BIG, index=2)
    frame = ask_chunk(request)
    assert (BIG.offer_id, 2) == offer_and_index(frame)
    with pytest.raises(WireFormatError, match="an offer is named by bytes"):
        offer_and_index(Frame(header={**frame.header, **changes}))


def test_a_chunk_is_compared_with_its_hash() -> None:
    """The right one comes back."""
    request = ChunkRequest(run_id="r", block=1, offer=SMALL, index=0)
    assert b"weights" == decode_chunk(Frame(header={"ok": True}, body=b"weights"), request)
    with pytest.raises(WireFormatError, match="does not match its hash"):
        decode_chunk(Frame(header={"ok": True}, body=b"wrights"), request)
