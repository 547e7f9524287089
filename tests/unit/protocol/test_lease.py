"""bt_p2p.protocol.lease: who holds which block, as strangers say and sign it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.errors import ProtocolError, RecordRejectedError, WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.keys import block_key, joining_key
from bt_p2p.protocol.lease import (
    BlockCopy,
    Lease,
    LeaseView,
    read_leases,
    sign_lease,
    verify_lease,
)
from bt_p2p.protocol.limits import (
    LEASE_TTL_S,
    MAX_CLOCK_SKEW_S,
    MAX_LEASE_TTL_S,
    MAX_RECORD_SIZE_BYTES,
    MAX_SPAN_BLOCKS,
)
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest

MANIFEST = tiny_manifest()
ME, OTHER = tiny_identity(0), tiny_identity(1)
LEASE = tiny_lease(MANIFEST, ME, 1)
SIGNED = sign_lease(LEASE, ME)


def sign_fields(fields: object, identity: PeerIdentity = ME) -> bytes:
    """What a peer with another program could sign."""
    payload = wire.pack(fields)
    return wire.pack([payload, identity.sign(b"bt-p2p lease\0" + payload)])


def changed(**fields: Any) -> bytes:
    """A signed lease with other fields, whether they make sense or not."""
    return sign_fields({**LEASE.model_dump(), **fields})


def read(*leases: Lease, now_s: float = START_S) -> LeaseView:
    """Read leases that each of these peers signed and stored where they belong."""
    by_peer = {identity.peer_id: identity for identity in (ME, OTHER)}
    records = []
    for lease in leases:
        signed = sign_lease(lease, by_peer[lease.peer_id])
        records.append((signed.key, {signed.subkey: signed.value}))
    return read_leases(records, now_s=now_s)


def test_a_signed_lease_is_read_back() -> None:
    """All fields survive."""
    assert (block_key(MANIFEST.run_id, 1), ME.peer_id_bytes) == (SIGNED.key, SIGNED.subkey)
    assert LEASE.expires_at_s == SIGNED.expires_at_s
    assert LEASE == verify_lease(SIGNED.subkey, SIGNED.value)


def test_a_peer_still_choosing_is_stored_under_joining() -> None:
    """No block, no block's key."""
    assert joining_key(MANIFEST.run_id) == tiny_lease(MANIFEST, ME, None).key


def test_a_full_lease_fits_one_record() -> None:
    """The longest honest lease stays below the cap of a DHT value."""
    full = LEASE.model_copy(
        update={
            "addresses": ["a" * 200] * 4,
            "boot_id": "b" * 32,
            "round_index": 2**40 - 1,
            "copies": [BlockCopy(block=255, round_index=2**40 - 1)] * (MAX_SPAN_BLOCKS - 1),
        }
    )
    assert len(sign_lease(full, ME).value) < MAX_RECORD_SIZE_BYTES


@pytest.mark.parametrize("index", range(0, len(SIGNED.value), 23))
def test_a_tampered_lease_is_refused(index: int) -> None:
    """The signature covers every byte."""
    value = bytearray(SIGNED.value)
    value[index] ^= 1
    with pytest.raises(ProtocolError):
        verify_lease(SIGNED.subkey, bytes(value))


def test_a_lease_under_another_peers_subkey_is_refused() -> None:
    """Nobody speaks for others."""
    with pytest.raises(RecordRejectedError, match="not signed by the peer"):
        verify_lease(OTHER.peer_id_bytes, SIGNED.value)


def test_a_lease_in_anothers_name_is_refused() -> None:
    """A valid signature is not enough: the author must be the peer it names."""
    value = sign_fields(LEASE.model_dump(), OTHER)
    with pytest.raises(RecordRejectedError, match="stored under another peer"):
        verify_lease(OTHER.peer_id_bytes, value)


@pytest.mark.parametrize("suffix", [" ", "\n", "\u00a0"])
def test_a_peer_id_has_one_spelling(suffix: str) -> None:
    """Base58 ignores space at the end; one peer would count twice."""
    with pytest.raises(RecordRejectedError):
        verify_lease(SIGNED.subkey, changed(peer_id=ME.peer_id + suffix))


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"peer_id": "not base58: 0OIl"}, "not base58"),
        ({"peer_id": "é"}, "not base58"),
        ({"expires_at_s": START_S + MAX_LEASE_TTL_S + 1}, "over the cap"),
        ({"block": -1}, "block"),
        ({"block": 256}, "block"),
        ({"block": "1"}, "block"),
        ({"block": True}, "block"),
        ({"loss": float("nan")}, "loss"),
        ({"loss": [[[1]]]}, "loss"),
        ({"bytes_per_s": float("inf")}, "bytes_per_s"),
        ({"round_index": 2**40}, "round_index"),
        ({"state": "sleeping"}, "state"),
        ({"version": 2}, "version"),
        ({"run_id": "r" * 65}, "run_id"),
        ({"addresses": ["a"] * 5}, "addresses"),
        ({"addresses": ["a" * 201]}, "addresses"),
        ({"expires_at_s": 1e12}, "expires_at_s"),
    ],
)
def test_values_out_of_range_are_named(fields: dict[str, Any], part: str) -> None:
    """Signed nonsense is still nonsense."""
    with pytest.raises(RecordRejectedError, match=part):
        verify_lease(SIGNED.subkey, changed(**fields))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        wire.pack([1]),
        wire.pack({"a": 1}),
        wire.pack(["text", b"bytes"]),
        wire.pack([b"payload", None]),
        b"\x00" * (MAX_RECORD_SIZE_BYTES + 1),
        sign_fields([1, 2]),
        sign_fields("text"),
    ],
)
def test_records_of_another_form_are_malformed(value: bytes) -> None:
    """Not a list of payload and signature, or no map inside."""
    with pytest.raises(WireFormatError):
        verify_lease(SIGNED.subkey, value)


def test_unknown_fields_are_tolerated() -> None:
    """Older peers read the leases of newer ones."""
    assert LEASE == verify_lease(SIGNED.subkey, changed(colour="blue", more={"a": [1]}))


@pytest.mark.parametrize("depth", [20, 500, 990, 2000])
def test_deep_values_are_refused_as_any_others(depth: int) -> None:
    """A signed tower of lists must not exhaust the stack of whoever reports it."""
    pairs = b"".join(
        wire.pack(name) + wire.pack(value)
        for name, value in LEASE.model_dump().items()
        if name != "loss"
    )
    head = bytes([0x80 | len(LEASE.model_dump())])
    payload = head + pairs + wire.pack("loss") + b"\x91" * depth + b"\x01"
    value = wire.pack([payload, ME.sign(b"bt-p2p lease\0" + payload)])

    view = read_leases([(SIGNED.key, {SIGNED.subkey: value})], now_s=START_S)

    assert LeaseView(leases=(), num_invalid=1) == view


def test_live_leases_are_read_in_order_of_peers() -> None:
    """All readers see the same order."""
    second = tiny_lease(MANIFEST, OTHER, None)
    expected = sorted([LEASE, second], key=lambda lease: lease.peer_id)
    view = read(second, LEASE)
    assert (tuple(expected), 0) == (view.leases, view.num_invalid)
    assert ((LEASE,), (second,)) == (view.of_block(1), view.joining)


def test_expired_leases_are_dropped_but_not_invalid() -> None:
    """A lease is void at its expiry, not a moment later."""
    assert (LEASE,) == read(LEASE, now_s=START_S + LEASE_TTL_S - 0.1).leases
    assert LeaseView(leases=(), num_invalid=0) == read(LEASE, now_s=START_S + LEASE_TTL_S)


def test_leases_from_the_future_are_invalid() -> None:
    """Clocks may differ a little, not more."""
    soon = tiny_lease(MANIFEST, ME, now_s=START_S + MAX_CLOCK_SKEW_S)
    later = tiny_lease(MANIFEST, OTHER, now_s=START_S + MAX_CLOCK_SKEW_S + 1)
    assert LeaseView(leases=(soon,), num_invalid=1) == read(soon, later)


def test_a_lease_moved_to_another_key_is_invalid() -> None:
    """Who holds block 1 does not hold block 2, nor a block of another run."""
    other_run = block_key(tiny_manifest("other").run_id, 1)
    for key in (block_key(MANIFEST.run_id, 2), joining_key(MANIFEST.run_id), other_run):
        view = read_leases([(key, {SIGNED.subkey: SIGNED.value})], now_s=START_S)
        assert LeaseView(leases=(), num_invalid=1) == view


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_newest_lease_of_a_peer_wins(is_reversed: bool) -> None:
    """A peer is in one place, whatever the order of reading."""
    newer = tiny_lease(MANIFEST, ME, 2, now_s=START_S + 1)
    leases = [newer, LEASE] if is_reversed else [LEASE, newer]
    assert (newer,) == read(*leases, now_s=START_S + 1).leases


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_leaving_peer_is_gone_under_every_key(is_reversed: bool) -> None:
    """Its lease as a joining peer, not expired yet, must not come back."""
    joining = tiny_lease(MANIFEST, ME, None)
    leaving = tiny_lease(MANIFEST, ME, 1, now_s=START_S + 5, state="leaving")
    leases = [leaving, joining] if is_reversed else [joining, leaving]
    assert LeaseView(leases=(), num_invalid=0) == read(*leases, now_s=START_S + 5)


def test_a_peer_that_left_can_come_back() -> None:
    """A lease newer than the last word is live again."""
    leaving = tiny_lease(MANIFEST, ME, 1, state="leaving")
    back = tiny_lease(MANIFEST, ME, 2, now_s=START_S + 5)
    assert (back,) == read(leaving, back, now_s=START_S + 5).leases


def test_invalid_records_are_counted_and_never_raised() -> None:
    """One broken record hides none of the others."""
    values: dict[bytes, object] = {
        SIGNED.subkey: SIGNED.value,
        OTHER.peer_id_bytes: SIGNED.value,
        b"": b"",
        b"number": 7,
        b"text": "text",
        b"nothing": None,
        b"list": [b"a"],
    }
    view = read_leases([(SIGNED.key, values)], now_s=START_S)
    assert LeaseView(leases=(LEASE,), num_invalid=5) == view


def test_age_is_never_negative() -> None:
    """Clocks of others run ahead."""
    assert (0.0, 2.0) == (LEASE.age_s(START_S - 3), LEASE.age_s(START_S + 2))


@given(st.binary(max_size=50), st.binary(max_size=300))
def test_arbitrary_bytes_raise_only_protocol_errors(subkey: bytes, value: bytes) -> None:
    """Strangers store anything."""
    with pytest.raises(ProtocolError):
        verify_lease(subkey, value)
    assert 1 == read_leases([("key", {subkey: value})], now_s=START_S).num_invalid


@given(st.integers(0, len(SIGNED.value)), st.integers(0, 3), st.binary(max_size=5), st.booleans())
def test_mutated_leases_raise_only_protocol_errors(
    at: int, cut: int, new: bytes, is_signed: bool
) -> None:
    """Whether the payload is damaged before it is signed or after."""
    value = SIGNED.value[:at] + new + SIGNED.value[at + cut :]
    if is_signed:
        payload = wire.pack(LEASE.model_dump())
        payload = payload[:at] + new + payload[at + cut :]
        value = wire.pack([payload, ME.sign(b"bt-p2p lease\0" + payload)])
    view = read_leases([(SIGNED.key, {SIGNED.subkey: value})], now_s=START_S)
    assert len(view.leases) + view.num_invalid <= 1
    message = ""
    try:
        verify_lease(SIGNED.subkey, value)
    except ProtocolError as error:
        message = str(error)
    assert "\n" not in message


PLAIN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=70)
    | st.binary(max_size=70),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(Lease.model_fields)), PLAIN_VALUES)
def test_any_signed_value_raises_only_protocol_errors(field: str, value: Any) -> None:
    """A peer with a valid key may say anything about itself."""
    message = ""
    try:
        verify_lease(SIGNED.subkey, changed(**{field: value}))
    except ProtocolError as error:
        message = str(error)
    assert message.isprintable()
