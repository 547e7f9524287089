"""The `Directory` port in memory: several peers share one dictionary."""

from __future__ import annotations

import threading

from bt_p2p.clock import Clock
from bt_p2p.errors import ProtocolError, SwarmError
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.keys import RUNS_KEY, block_key, joining_key
from bt_p2p.protocol.lease import Lease, LeaseView, read_leases, sign_lease
from bt_p2p.protocol.limits import LEASE_TTL_S, MANIFEST_TTL_S
from bt_p2p.protocol.manifest import RunManifest


class SharedRecords:
    """What a DHT would hold: key -> subkey -> value, each with its own expiry.

    As in hivemind, a record is replaced only by one that expires later. Unlike there, nothing is
    validated on the way in, so that tests can store what strangers might.

    Attributes:
        is_down: while true, every access fails as if the DHT did not answer.
    """

    def __init__(self, clock: Clock) -> None:
        """Start empty."""
        self.clock = clock
        self.is_down = False
        self._lock = threading.Lock()
        self._records: dict[str, dict[str | bytes, tuple[object, float]]] = {}

    def store(self, key: str, subkey: str | bytes, value: object, expires_at_s: float) -> bool:
        """Keep a record; says whether it was newer than what was there.

        Raises:
            SwarmError: the store is down.
        """
        self._check_is_up()
        with self._lock:
            dictionary = self._records.setdefault(key, {})
            _, known_until_s = dictionary.get(subkey, (None, self.clock.now_s()))
            if expires_at_s <= max(known_until_s, self.clock.now_s()):
                return False
            dictionary[subkey] = (value, expires_at_s)
            return True

    def get(self, key: str) -> dict[str | bytes, object]:
        """The records under a key that have not expired, by subkey.

        Raises:
            SwarmError: the store is down.
        """
        self._check_is_up()
        now_s = self.clock.now_s()
        with self._lock:
            return {
                subkey: value
                for subkey, (value, expires_at_s) in self._records.get(key, {}).items()
                if expires_at_s > now_s
            }

    def _check_is_up(self) -> None:
        if self.is_down:
            raise SwarmError("no answer from the DHT: it was made to be down")


class InMemoryDirectory:
    """One peer's handle on shared records; leases are really signed and verified."""

    def __init__(self, records: SharedRecords, identity: PeerIdentity | None = None) -> None:
        """Wrap; without an identity it can only read."""
        self._records = records
        self._identity = identity

    def announce(self, lease: Lease) -> None:
        """Publish one's own lease, in place of the one before it."""
        if self._identity is None:
            raise RuntimeError("a directory without an identity cannot announce")
        signed = sign_lease(lease, self._identity)
        self._records.store(*signed)

    def withdraw(self, lease: Lease) -> None:
        """Make a lease one has announced void at once."""
        now_s = self._records.clock.now_s()
        update = {
            "state": "leaving",
            "issued_at_s": now_s,
            "expires_at_s": max(now_s, lease.expires_at_s) + LEASE_TTL_S / 10,
        }
        self.announce(lease.model_copy(update=update))

    def read(self, manifest: RunManifest) -> LeaseView:
        """The live, valid leases of all blocks of a run, and of peers still choosing."""
        run_id = manifest.run_id
        keys = [joining_key(run_id)]
        keys += [block_key(run_id, block) for block in range(manifest.model.num_blocks)]
        found = []
        for key in keys:
            by_subkey = self._records.get(key)
            found.append(
                (key, {name: value for name, value in by_subkey.items() if isinstance(name, bytes)})
            )
        return read_leases(found, now_s=self._records.clock.now_s(), manifest=manifest)

    def publish(self, manifest: RunManifest) -> None:
        """Store a manifest, so that newcomers find it."""
        self._records.store(
            RUNS_KEY,
            manifest.run_id,
            manifest.canonical_bytes(),
            self._records.clock.now_s() + MANIFEST_TTL_S,
        )

    def runs(self) -> dict[str, RunManifest]:
        """All runs known here, by run id; each proven by its own hash."""
        manifests = {}
        for run_id, data in self._records.get(RUNS_KEY).items():
            if not isinstance(run_id, str) or not isinstance(data, bytes):
                continue
            try:
                manifests[run_id] = RunManifest.from_untrusted_bytes(data, run_id=run_id)
            except ProtocolError:
                continue
        return manifests
