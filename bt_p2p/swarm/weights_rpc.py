"""Offers and chunks of weights <-> frames; see `chain.weights_offer`."""

from __future__ import annotations

from collections.abc import Sequence

from bt_p2p.chain.weights_offer import (
    DIGEST_SIZE_BYTES,
    ChunkRequest,
    WeightsOffer,
    check_chunk,
    check_offer,
)
from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.limits import MAX_OLD_SNAPSHOTS, WEIGHTS_CHUNK_SIZE_BYTES
from bt_p2p.swarm.streams import Frame


def ask_offers(run_id: str, block: int) -> Frame:
    """The request for offers."""
    return Frame(header={"op": "weights_offers", "run": run_id, "block": block})


def encode_offers(offers: Sequence[WeightsOffer]) -> Frame:
    """The answer."""
    return Frame(
        header={"ok": True, "offers": [[each.round_index, each.size_bytes] for each in offers]},
        body=b"".join(digest for each in offers for digest in each.chunk_digests),
    )


def decode_offers(frame: Frame, *, max_size_bytes: int) -> tuple[WeightsOffer, ...]:
    """Read a stranger's answer.

    Raises:
        WireFormatError: malformed, or an offer is over `max_size_bytes`.
    """
    described = frame.header.get("offers")
    if not isinstance(described, list) or not 1 <= len(described) <= 1 + MAX_OLD_SNAPSHOTS:
        raise WireFormatError(f"weights are offered in 1 to {1 + MAX_OLD_SNAPSHOTS} snapshots")
    offers, start = [], 0
    for entry in described:
        match entry:
            case [int(round_index), int(size_bytes)]:
                num_chunks = max(0, -(-size_bytes // WEIGHTS_CHUNK_SIZE_BYTES))
            case _:
                raise WireFormatError(f"offer {entry!r:.60} is not a round and a size")
        end = start + DIGEST_SIZE_BYTES * num_chunks
        offer = WeightsOffer(
            round_index=round_index,
            size_bytes=size_bytes,
            chunk_digests=tuple(
                frame.body[offset : offset + DIGEST_SIZE_BYTES]
                for offset in range(start, min(end, len(frame.body)), DIGEST_SIZE_BYTES)
            ),
        )
        check_offer(offer, max_size_bytes=max_size_bytes)
        offers.append(offer)
        start = end
    if start != len(frame.body):
        raise WireFormatError(f"hashes of {start} bytes are expected, {len(frame.body)} have come")
    return tuple(offers)


def ask_chunk(request: ChunkRequest) -> Frame:
    """The request for a chunk."""
    return Frame(
        header={
            "op": "weights_chunk",
            "run": request.run_id,
            "block": request.block,
            "offer": request.offer.offer_id,
            "index": request.index,
        }
    )


def offer_and_index(frame: Frame) -> tuple[bytes, int]:
    """What a stranger asks for.

    Raises:
        WireFormatError: malformed.
    """
    offer_id, index = frame.header.get("offer"), frame.header.get("index")
    if not isinstance(offer_id, bytes) or type(index) is not int:
        raise WireFormatError("an offer is named by bytes, and a chunk by a whole number")
    return offer_id, index


def decode_chunk(frame: Frame, request: ChunkRequest) -> bytes:
    """Read a stranger's chunk.

    Raises:
        WireFormatError: not the one that was asked for.
    """
    check_chunk(request, frame.body)
    return frame.body
