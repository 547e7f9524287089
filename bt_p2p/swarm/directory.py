"""The `Directory` port over hivemind's DHT."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from hivemind import DHT
from hivemind.dht.node import DHTNode
from hivemind.utils import get_dht_time

from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.keys import RUNS_KEY, block_key, joining_key
from bt_p2p.protocol.lease import Lease, LeaseView, read_leases, sign_lease
from bt_p2p.protocol.limits import DHT_TIMEOUT_S, LEASE_TTL_S, MANIFEST_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.bridge import call_in_dht
from bt_p2p.swarm.validators import decodable_manifests


class HivemindDirectory:
    """Leases and manifests in the DHT; see `bt_p2p.protocol.directory.Directory`."""

    def __init__(self, dht: DHT, identity: PeerIdentity | None = None) -> None:
        """Wrap a started DHT; without an identity it can only read."""
        self._dht = dht
        self._identity = identity

    def announce(self, lease: Lease) -> None:
        """Publish one's own lease, in place of the one before it."""
        if self._identity is None:
            raise RuntimeError("a directory without an identity cannot announce")
        signed = sign_lease(lease, self._identity)
        self._store(signed.key, signed.subkey, signed.value, signed.expires_at_s, "announcing")

    def withdraw(self, lease: Lease) -> None:
        """Make a lease one has announced void at once."""
        now_s = get_dht_time()
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
        found = call_in_dht(
            self._dht,
            functools.partial(_in_dht_get_many, keys=keys),
            timeout_s=DHT_TIMEOUT_S,
            what="reading the swarm",
        )
        return read_leases(found.items(), now_s=get_dht_time(), manifest=manifest)

    def publish(self, manifest: RunManifest) -> None:
        """Store a manifest, so that newcomers find it."""
        self._store(
            RUNS_KEY,
            manifest.run_id,
            manifest.canonical_bytes(),
            get_dht_time() + MANIFEST_TTL_S,
            "publishing the manifest",
        )

    def runs(self) -> dict[str, RunManifest]:
        """All runs known here, by run id; each proven by its own hash."""
        found = call_in_dht(
            self._dht,
            functools.partial(_in_dht_get_many, keys=[RUNS_KEY]),
            timeout_s=DHT_TIMEOUT_S,
            what="looking for runs",
        )
        return decodable_manifests(found.get(RUNS_KEY, {}).items())

    def _store(
        self, key: str, subkey: str | bytes, value: bytes, expires_at_s: float, what: str
    ) -> None:
        call_in_dht(
            self._dht,
            functools.partial(
                _in_dht_store, key=key, subkey=subkey, value=value, expires_at_s=expires_at_s
            ),
            timeout_s=DHT_TIMEOUT_S,
            what=what,
        )


async def _in_dht_get_many(
    _dht: DHT, node: DHTNode, keys: Sequence[str]
) -> dict[str, dict[Any, Any]]:
    """Dictionaries behind some keys: subkey -> value; keys that hold none are left out."""
    found = await node.get_many(keys, sufficient_expiration_time=float("inf"))
    return {
        key: {subkey: entry.value for subkey, entry in result.value.items()}
        for key, result in found.items()
        if result is not None and isinstance(result.value, dict)
    }


async def _in_dht_store(
    _dht: DHT, node: DHTNode, key: str, subkey: str | bytes, value: bytes, expires_at_s: float
) -> bool:
    """Store one subkey. False only says that the last replica asked has a newer record."""
    is_stored: bool = await node.store(key, value, expires_at_s, subkey=subkey)
    return is_stored
