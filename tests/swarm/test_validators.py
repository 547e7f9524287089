"""What a node stores for others: every known attack on an open DHT is refused at its door."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.keys import RUNS_KEY, averaging_prefix, block_key
from bt_p2p.protocol.lease import sign_lease
from bt_p2p.protocol.limits import MAX_RECORD_SIZE_BYTES, MAX_RECORD_TTL_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest

pytestmark = pytest.mark.swarm

MANIFEST = tiny_manifest()
KEY = block_key(MANIFEST.run_id, 0)
ME, OTHER = tiny_identity(1), tiny_identity(2)
PLAIN_VALUE = None
"""hivemind's mark of a value that stands for the whole key."""


def lease_value(identity: PeerIdentity, block: int = 0) -> bytes:
    """A valid signed lease, from now on."""
    return sign_lease(tiny_lease(MANIFEST, identity, block, now_s=time.time()), identity).value


@pytest.fixture(scope="module")
def accepts() -> Callable[..., bool]:
    """Whether a node that knows the run stores a record."""
    from hivemind.dht.validation import DHTRecord
    from hivemind.utils.serializer import MSGPackSerializer

    from bt_p2p.swarm.validators import key_hash, run_validator

    validator = run_validator(MANIFEST.run_id, MANIFEST.model.num_blocks)

    def check(key: str, subkey: object, value: object, ttl_s: float = 30.0) -> bool:
        return validator.validate(
            DHTRecord(
                key_hash(key),
                MSGPackSerializer.dumps(subkey),
                MSGPackSerializer.dumps(value),
                time.time() + ttl_s,
            )
        )

    return check


def test_honest_records_are_stored(accepts: Callable[..., bool]) -> None:
    """Leases, manifests, hivemind's own search records, and leases of unknown runs."""
    unknown = tiny_manifest("unknown")
    foreign = sign_lease(tiny_lease(unknown, ME, now_s=time.time()), ME)

    assert accepts(KEY, ME.peer_id_bytes, lease_value(ME))
    assert accepts(RUNS_KEY, MANIFEST.run_id, MANIFEST.canonical_bytes(), MAX_RECORD_TTL_S - 5)
    assert accepts(f"{averaging_prefix(MANIFEST.run_id, 0)}.0b", ME.peer_id_bytes, True)
    assert accepts(foreign.key, foreign.subkey, foreign.value)


def test_a_plain_value_over_a_whole_key_is_refused(accepts: Callable[..., bool]) -> None:
    """It would hide every lease under the key."""
    assert not accepts(KEY, PLAIN_VALUE, b"squatted")
    assert not accepts("any other key", PLAIN_VALUE, b"squatted")


@pytest.mark.parametrize("ttl_s", [10 * 365 * 86400, math.inf, math.nan])
def test_records_that_live_too_long_are_refused(accepts: Callable[..., bool], ttl_s: float) -> None:
    """Ten years, for ever, and no time at all."""
    assert not accepts(KEY, ME.peer_id_bytes, lease_value(ME), ttl_s)


def test_a_lease_under_another_peers_subkey_is_refused(accepts: Callable[..., bool]) -> None:
    """Nobody can overwrite somebody else's lease."""
    assert not accepts(KEY, OTHER.peer_id_bytes, lease_value(ME))


def test_a_lease_under_another_block_is_refused(accepts: Callable[..., bool]) -> None:
    """A signed record cannot be moved."""
    assert not accepts(KEY, ME.peer_id_bytes, lease_value(ME, block=1))


@pytest.mark.parametrize("value", ["a string", 7, b"", b"\xc1", ["list"], {1: 2}, None])
def test_anything_unsigned_under_a_known_key_is_refused(
    accepts: Callable[..., bool], value: object
) -> None:
    """Only leases stand under the keys of a run."""
    assert not accepts(KEY, ME.peer_id_bytes, value)


def test_oversized_values_and_subkeys_are_refused(accepts: Callable[..., bool]) -> None:
    """Nobody fills our memory, under whatever key."""
    assert not accepts("any key", "sub", b"x" * (MAX_RECORD_SIZE_BYTES + 1))
    assert not accepts("any key", "s" * 500, b"x")


def test_a_manifest_under_another_id_is_refused(accepts: Callable[..., bool]) -> None:
    """Manifests prove themselves to nodes that have never seen the run."""
    other = tiny_manifest("other")

    assert not accepts(RUNS_KEY, other.run_id, MANIFEST.canonical_bytes())
    assert not accepts(RUNS_KEY, MANIFEST.run_id, b"{}")


def test_nested_extension_types_are_refused(accepts: Callable[..., bool]) -> None:
    """The bytes that crash an unprotected node."""
    import msgpack

    nested = b""
    for _ in range(300):
        nested = msgpack.packb(msgpack.ExtType(0x40, nested))

    assert not accepts("any key", "sub", msgpack.ExtType(0x40, nested))
