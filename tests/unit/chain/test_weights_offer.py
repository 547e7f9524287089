"""An offer names its bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bt_p2p.chain.weights_offer import ChunkRequest, check_chunk, check_offer, make_offer
from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.limits import WEIGHTS_CHUNK_SIZE_BYTES as CHUNK

DATA = bytes(range(256)) * (CHUNK // 256) + b"rest"
OFFER = make_offer(DATA, 5)


def test_the_id_follows_from_bytes_and_round_alone() -> None:
    """Two holders of the same weights make the same offer."""
    assert OFFER.offer_id == make_offer(bytes(DATA), 5).offer_id
    others = {
        make_offer(DATA, 6).offer_id,
        make_offer(DATA + b"x", 5).offer_id,
        make_offer(DATA[:-1] + b"x", 5).offer_id,
        make_offer(b"x" + DATA[1:], 5).offer_id,
        replace(OFFER, size_bytes=CHUNK + 5).offer_id,
    }
    assert 5 == len(others - {OFFER.offer_id})


def test_chunks_cover_the_whole() -> None:
    """The last one is short."""
    parts = [DATA[OFFER.chunk_slice(index)] for index in range(OFFER.num_chunks)]
    assert (2, DATA, b"rest") == (len(parts), b"".join(parts), parts[-1])
    assert all(OFFER.holds(index, part) for index, part in enumerate(parts))


@pytest.mark.parametrize("spoil", [lambda c: c[1:], lambda c: c + b"x", lambda c: b"?" + c[1:]])
def test_a_spoilt_chunk_is_refused(spoil) -> None:
    """Short, long, or changed."""
    request = ChunkRequest(run_id="r", block=0, offer=OFFER, index=1)
    check_chunk(request, b"rest")
    with pytest.raises(WireFormatError, match="chunk 1 of 2 of the weights of round 5"):
        check_chunk(request, spoil(b"rest"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"round_index": -1}, "round -1"),
        ({"round_index": 2**40}, "round 1099511627776"),
        ({"size_bytes": 0}, "weights of 0 bytes"),
        ({"size_bytes": CHUNK + 101}, "over the 262244"),
        ({"size_bytes": CHUNK}, "in 2 chunks"),
        ({"chunk_digests": ()}, "in 0 chunks"),
    ],
)
def test_an_offer_that_cannot_be_taken_is_refused(changes, message) -> None:
    """Before a byte of it is fetched."""
    check_offer(OFFER, max_size_bytes=CHUNK + 100)
    with pytest.raises(WireFormatError, match=message):
        check_offer(replace(OFFER, **changes), max_size_bytes=CHUNK + 100)
