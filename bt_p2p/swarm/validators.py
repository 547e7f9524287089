"""What this node stores for others: only small, short-lived, signed or self-proving records.

hivemind shows a validator the hash of a key, never its text. A lease names its run and block, and a
manifest proves its run id, so both can be bound to their key without knowing the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.validation import DHTRecord, RecordValidatorBase
from hivemind.utils import get_dht_time

from bt_p2p.errors import ProtocolError
from bt_p2p.protocol import wire
from bt_p2p.protocol.keys import RUNS_KEY, block_key, joining_key
from bt_p2p.protocol.lease import verify_lease
from bt_p2p.protocol.limits import MAX_RECORD_SIZE_BYTES, MAX_RECORD_TTL_S
from bt_p2p.protocol.manifest import RunManifest

_MAX_SUBKEY_SIZE_BYTES = 128


def key_hash(key: str) -> bytes:
    """What hivemind calls a key on the wire."""
    digest: bytes = DHTID.generate(source=key).to_bytes()
    return digest


class RecordValidator(RecordValidatorBase):
    """Checks every record that peers ask us to store or send us as an answer."""

    def __init__(self) -> None:
        """Know the key of manifests; leases of a run are added by `add_run`."""
        self._runs_key = key_hash(RUNS_KEY)
        self._lease_keys: set[bytes] = set()

    def add_run(self, run_id: str, num_blocks: int) -> None:
        """From now on only signed leases may stand under the keys of this run."""
        keys = [joining_key(run_id), *(block_key(run_id, block) for block in range(num_blocks))]
        self._lease_keys.update(key_hash(key) for key in keys)

    def validate(self, record: DHTRecord) -> bool:
        """As `accepts`, for hivemind."""
        return self.accepts(
            key=record.key,
            subkey=record.subkey,
            value=record.value,
            expires_at_s=record.expiration_time,
        )

    def accepts(self, *, key: bytes, subkey: bytes, value: bytes, expires_at_s: float) -> bool:
        """Whether a record may be stored here or believed; raises on nothing.

        Args:
            key: hash of the key.
            subkey: msgpack.
            value: msgpack.
            expires_at_s: DHT time.
        """
        if not math.isfinite(expires_at_s) or expires_at_s > get_dht_time() + MAX_RECORD_TTL_S:
            return False
        if subkey in DHTProtocol.RESERVED_SUBKEYS:  # a plain value would hide a dictionary
            return False
        try:
            return self._is_acceptable(
                key,
                wire.unpack(subkey, max_size_bytes=_MAX_SUBKEY_SIZE_BYTES),
                wire.unpack(value, max_size_bytes=MAX_RECORD_SIZE_BYTES),
            )
        except ProtocolError:
            return False

    def _is_acceptable(self, key: bytes, subkey: Any, value: Any) -> bool:
        if key == self._runs_key:
            return _is_manifest(subkey, value)
        if key in self._lease_keys:
            return isinstance(subkey, bytes) and _is_lease_for(key, subkey, value)
        # hivemind's own records (replicas that look for a group), and leases of other runs
        return isinstance(subkey, str | bytes | int)

    def merge_with(self, other: RecordValidatorBase) -> bool:
        """Take over the runs of another validator of this kind."""
        if not isinstance(other, RecordValidator):
            return False
        self._lease_keys |= other._lease_keys
        return True


def run_validator(run_id: str, num_blocks: int) -> RecordValidator:
    """A validator that knows one run, to be merged into a running DHT."""
    validator = RecordValidator()
    validator.add_run(run_id, num_blocks)
    return validator


def decodable_manifests(records: Iterable[tuple[Any, Any]]) -> dict[str, RunManifest]:
    """The manifests among (run id, bytes) pairs that prove themselves; others are left out."""
    manifests: dict[str, RunManifest] = {}
    for run_id, data in records:
        if _is_manifest(run_id, data):
            manifests[run_id] = RunManifest.from_untrusted_bytes(data, run_id=run_id)
    return manifests


def _is_manifest(run_id: Any, data: Any) -> bool:
    if not isinstance(run_id, str) or not isinstance(data, bytes):
        return False
    try:
        RunManifest.from_untrusted_bytes(data, run_id=run_id)
    except ProtocolError:
        return False
    return True


def _is_lease_for(key: bytes, subkey: bytes, value: Any) -> bool:
    if not isinstance(value, bytes):
        return False
    return key_hash(verify_lease(subkey, value).key) == key
