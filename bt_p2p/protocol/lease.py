"""Leases: what a peer says of itself, signed, and gone within seconds when it dies.

On the wire a lease is msgpack of [payload, signature]. The payload names its run, block and peer,
so a lease cannot be moved to another key; the signature is checked with the key inside the peer id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bt_p2p.errors import ProtocolError, RecordRejectedError, WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.identity import PeerIdentity, peer_id_to_bytes, signature_is_valid
from bt_p2p.protocol.keys import block_key, joining_key
from bt_p2p.protocol.limits import (
    MAX_CLOCK_SKEW_S,
    MAX_LEASE_TTL_S,
    MAX_MEMBERSHIP_SIZE_BYTES,
    MAX_RECORD_SIZE_BYTES,
    MAX_SPAN_BLOCKS,
    PROTOCOL_VERSION,
)
from bt_p2p.protocol.manifest import RunManifest, first_problem
from bt_p2p.protocol.membership import check_membership

_DOMAIN = b"bt-p2p lease\0"

LeaseState = Literal["joining", "training", "leaving"]


class BlockCopy(BaseModel):
    """A block that a peer does not train, but serves from a copy of another's weights."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    block: Annotated[int, Field(ge=0, lt=256)]
    round_index: Annotated[int, Field(ge=0, lt=2**40)]
    """Rounds of training behind the copy."""


class Lease(BaseModel):
    """One peer's claim to one block of one run, until it expires."""

    # Unknown fields are ignored, so that older peers can read the leases of newer ones.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    version: Literal[1] = PROTOCOL_VERSION
    run_id: Annotated[str, Field(max_length=64)]
    peer_id: Annotated[str, Field(max_length=64)]
    """Base58; also the author, whose key must have signed."""
    boot_id: Annotated[str, Field(max_length=32)]
    """Fresh at every start; tells people a restart from a renewal."""
    block: Annotated[int, Field(ge=0, lt=256)] | None
    """The block this peer trains and serves; None while it chooses one."""
    state: LeaseState
    round_index: Annotated[int, Field(ge=0, lt=2**40)] = 0
    """Rounds of training that the weights served have been through."""
    loss: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Mean training cross entropy of the round so far, nats per byte."""
    bytes_per_s: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    """Training speed in bytes of text."""
    partners: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Other replicas in the average of this peer's last round; 0 if it had none."""
    is_paused: bool = False
    """It serves its block, but neither trains nor averages; older peers do not know this."""
    copies: Annotated[list[BlockCopy], Field(max_length=MAX_SPAN_BLOCKS - 1)] = []
    """The other blocks of the span that this peer serves."""
    addresses: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=4)] = []
    """Multiaddrs under which this peer can be dialled, best first."""
    is_relayed: bool = False
    """Whether it is reached through another peer only: slower, and that peer carries its traffic."""
    membership: Annotated[bytes, Field(max_length=MAX_MEMBERSHIP_SIZE_BYTES)] | None = None
    """Shows that this peer may hold blocks of a closed run."""
    issued_at_s: Annotated[float, Field(ge=0, le=1e11)]
    """DHT time at signing."""
    expires_at_s: Annotated[float, Field(ge=0, le=1e11)]
    """DHT time at which the lease is void."""

    @property
    def key(self) -> str:
        """The DHT key under which this lease belongs."""
        if self.block is None:
            return joining_key(self.run_id)
        return block_key(self.run_id, self.block)

    def round_of(self, block: int) -> int | None:
        """Rounds behind the weights of a block that this peer serves; None if it does not."""
        if self.block == block:
            return self.round_index if self.state == "training" else None
        return next((copy.round_index for copy in self.copies if copy.block == block), None)

    def age_s(self, now_s: float) -> float:
        """Seconds since it was signed; never negative."""
        return max(0.0, now_s - self.issued_at_s)


class SignedLease(NamedTuple):
    """A lease in the form in which the DHT stores it."""

    key: str
    subkey: bytes
    value: bytes
    expires_at_s: float


def sign_lease(lease: Lease, identity: PeerIdentity) -> SignedLease:
    """Encode and sign one's own lease."""
    payload = wire.pack(lease.model_dump())
    value = wire.pack([payload, identity.sign(_DOMAIN + payload)])
    return SignedLease(lease.key, identity.peer_id_bytes, value, lease.expires_at_s)


def verify_lease(subkey: bytes, value: bytes) -> Lease:
    """Decode a stranger's lease and check that its author wrote it for this subkey.

    Expiry is not checked here: storage and readers each compare with their own clock.

    Raises:
        WireFormatError: too large or malformed.
        RecordRejectedError: unsigned, of another author, or out of range.
    """
    parts = wire.unpack(value, max_size_bytes=MAX_RECORD_SIZE_BYTES)
    if not isinstance(parts, list) or len(parts) != 2:
        raise WireFormatError("a lease is a list of payload and signature")
    payload, signature = parts
    if not isinstance(payload, bytes) or not isinstance(signature, bytes):
        raise WireFormatError("payload and signature of a lease are bytes")
    if not signature_is_valid(subkey, _DOMAIN + payload, signature):
        raise RecordRejectedError("the lease is not signed by the peer it is stored under")
    fields = wire.unpack_map(payload, max_size_bytes=MAX_RECORD_SIZE_BYTES)
    try:
        lease = Lease.model_validate(fields)
    except ValidationError as exc:
        raise RecordRejectedError(f"lease is out of range: {first_problem(exc)}") from exc
    try:
        author = peer_id_to_bytes(lease.peer_id)
    except ValueError as exc:
        raise RecordRejectedError(f"lease names peer {lease.peer_id!r}, not base58") from exc
    if author != subkey or lease.peer_id != lease.peer_id.rstrip():  # base58 ignores spaces
        raise RecordRejectedError(f"lease of {lease.peer_id!r} is stored under another peer")
    if lease.expires_at_s - lease.issued_at_s > MAX_LEASE_TTL_S:
        raise RecordRejectedError(
            f"lease claims to live {lease.expires_at_s - lease.issued_at_s:.0f} s, over the cap "
            f"of {MAX_LEASE_TTL_S:.0f} s"
        )
    return lease


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseView:
    """The live leases a reader accepts, and how many records it refused."""

    leases: tuple[Lease, ...]
    num_invalid: int

    def of_block(self, block: int) -> tuple[Lease, ...]:
        """Live leases of one block."""
        return tuple(lease for lease in self.leases if lease.block == block)

    @property
    def joining(self) -> tuple[Lease, ...]:
        """Peers that have not chosen a block yet."""
        return tuple(lease for lease in self.leases if lease.block is None)


def read_leases(
    records: Iterable[tuple[str, Mapping[bytes, object]]],
    *,
    now_s: float,
    manifest: RunManifest | None = None,
) -> LeaseView:
    """Keep what is valid and alive; count what is not. Never raises on a stranger's data.

    Args:
        records: (key, subkey -> value) as the DHT returned them.
        now_s: DHT time.
        manifest: of the run; if it is closed, only leases of its members are valid.
    """
    accepted: dict[str, Lease] = {}
    num_invalid = 0
    for key, dictionary in records:
        for subkey, value in dictionary.items():
            if value is None:
                continue
            try:
                if not isinstance(value, bytes):
                    raise WireFormatError(f"a lease is bytes, not {type(value).__name__}")
                lease = verify_lease(subkey, value)
                if lease.key != key:
                    raise RecordRejectedError(f"lease for {lease.key} is stored under {key}")
                if lease.issued_at_s > now_s + MAX_CLOCK_SKEW_S:
                    raise RecordRejectedError("lease is from the future")
                if manifest is not None:
                    check_membership(manifest, lease.peer_id, lease.membership, now_s=now_s)
            except ProtocolError:
                num_invalid += 1
                continue
            if lease.expires_at_s <= now_s:
                continue
            known = accepted.get(lease.peer_id)
            if known is None or known.issued_at_s < lease.issued_at_s:
                accepted[lease.peer_id] = lease
    # A peer that leaves takes its older leases under other keys with it.
    alive = [lease for lease in accepted.values() if lease.state != "leaving"]
    leases = tuple(sorted(alive, key=lambda lease: lease.peer_id))
    return LeaseView(leases=leases, num_invalid=num_invalid)
