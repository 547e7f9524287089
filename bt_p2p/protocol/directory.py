"""The port through which leases and manifests are written and read.

`bt_p2p.swarm.directory` keeps them in hivemind's DHT, `bt_p2p.testing.directory` in memory; one
contract test runs on both.
"""

from __future__ import annotations

from typing import Protocol

from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.manifest import RunManifest


class Directory(Protocol):
    """Shared, untrusted, eventually consistent. Every call blocks for at most its own deadline.

    All calls raise SwarmError when the DHT does not answer within `DHT_TIMEOUT_S`.
    """

    def announce(self, lease: Lease) -> None:
        """Publish one's own lease, in place of the one before it."""

    def withdraw(self, lease: Lease) -> None:
        """Make a lease one has announced void at once."""

    def read(self, manifest: RunManifest) -> LeaseView:
        """The live, valid leases of all blocks of a run, and of peers still choosing."""

    def publish(self, manifest: RunManifest) -> None:
        """Store a manifest, so that newcomers find it; repeat before `MANIFEST_TTL_S` is over."""

    def runs(self) -> dict[str, RunManifest]:
        """All runs known here, by run id; each proven by its own hash."""
