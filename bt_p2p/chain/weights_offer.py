"""What a holder offers of its weights: a snapshot of one round, named by the hashes of its chunks.

The id of an offer is a hash over its round, its size and the hash of every chunk. So offers with one id
are of the same bytes, whoever makes them, and each chunk can be checked when it arrives.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.limits import MAX_WEIGHTS_SIZE_BYTES, WEIGHTS_CHUNK_SIZE_BYTES

DIGEST_SIZE_BYTES = 32
_DOMAIN = b"bt-p2p weights\0"
_MAX_ROUND = 2**40


@dataclass(frozen=True, kw_only=True)
class WeightsOffer:
    """A snapshot that a holder can give in chunks."""

    round_index: int
    """Rounds of training behind the weights."""
    size_bytes: int
    """Of the whole, safetensors."""
    chunk_digests: tuple[bytes, ...]
    """Sha256 of every chunk, in order."""

    @cached_property
    def offer_id(self) -> bytes:
        """Name of these bytes of this round; 32 bytes."""
        digest = hashlib.sha256(_DOMAIN)
        digest.update(struct.pack("<QQ", self.round_index, self.size_bytes))
        digest.update(b"".join(self.chunk_digests))
        return digest.digest()

    @property
    def num_chunks(self) -> int:
        """How many chunks there are."""
        return len(self.chunk_digests)

    def chunk_slice(self, index: int) -> slice:
        """Where a chunk lies in the whole."""
        start = index * WEIGHTS_CHUNK_SIZE_BYTES
        return slice(start, min(start + WEIGHTS_CHUNK_SIZE_BYTES, self.size_bytes))

    def holds(self, index: int, data: bytes | memoryview) -> bool:
        """Whether this is the chunk with that index."""
        return hashlib.sha256(data).digest() == self.chunk_digests[index]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkRequest:
    """One chunk of an offer, asked of a holder that made this offer."""

    run_id: str
    block: int
    offer: WeightsOffer
    index: int


def make_offer(data: bytes, round_index: int) -> WeightsOffer:
    """Offer these bytes."""
    view = memoryview(data)
    return WeightsOffer(
        round_index=round_index,
        size_bytes=len(data),
        chunk_digests=tuple(
            hashlib.sha256(view[start : start + WEIGHTS_CHUNK_SIZE_BYTES]).digest()
            for start in range(0, len(data), WEIGHTS_CHUNK_SIZE_BYTES)
        ),
    )


def check_offer(offer: WeightsOffer, *, max_size_bytes: int) -> None:
    """Whether a stranger's offer is one that can be taken.

    Raises:
        WireFormatError: too large, or its numbers do not fit each other.
    """
    if not 0 <= offer.round_index < _MAX_ROUND:
        raise WireFormatError(f"weights are offered for round {offer.round_index}")
    limit = min(max_size_bytes, MAX_WEIGHTS_SIZE_BYTES)
    if not 0 < offer.size_bytes <= limit:
        raise WireFormatError(
            f"weights of {offer.size_bytes} bytes are over the {limit} of this block"
        )
    if offer.num_chunks != -(-offer.size_bytes // WEIGHTS_CHUNK_SIZE_BYTES):
        raise WireFormatError(
            f"weights of {offer.size_bytes} bytes are offered in {offer.num_chunks} chunks"
        )


def check_chunk(request: ChunkRequest, data: bytes) -> None:
    """Whether a stranger sent the chunk that was asked for.

    Raises:
        WireFormatError: it is another one, or damaged.
    """
    if not request.offer.holds(request.index, data):
        raise WireFormatError(
            f"chunk {request.index} of {request.offer.num_chunks} of the weights of round "
            f"{request.offer.round_index} does not match its hash"
        )
