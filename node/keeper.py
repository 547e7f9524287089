"""Keeps the node's lease alive, the manifest in the DHT, and a fresh view of the swarm."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bt_p2p.clock import Clock
from bt_p2p.errors import SwarmError
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import LEASE_RENEW_S, LEASE_TTL_S, MANIFEST_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from node.twin import TwinWatch

logger = logging.getLogger(__name__)

Describe = Callable[[float, float], Lease]
"""Makes the node's lease from its issue and expiry time."""


class LeaseKeeper:
    """A thread that renews the lease every `LEASE_RENEW_S`, and whenever it is poked.

    Attributes:
        latest: the last view of the swarm; None before the first.
        problem: why the last renewal failed; empty once one succeeds.
        twins: whether another node uses the same key.
    """

    def __init__(
        self,
        directory: Directory,
        manifest: RunManifest,
        describe: Describe,
        clock: Clock,
        on_view: Callable[[SwarmOverview], None],
    ) -> None:
        """Nothing is announced before `start`.

        Args:
            directory: where leases are kept.
            manifest: the run.
            describe: called for each renewal, from this thread.
            clock: DHT time.
            on_view: called with each fresh view of the swarm, from this thread.
        """
        self._directory = directory
        self._manifest = manifest
        self._describe = describe
        self._clock = clock
        self._on_view = on_view
        self._wake = threading.Event()
        self._is_ending = False
        self._published_at_s = float("-inf")
        self._lease: Lease | None = None
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self.latest: SwarmOverview | None = None
        self.problem = ""
        self.twins = TwinWatch()

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def poke(self) -> None:
        """Renew soon: something worth announcing has changed."""
        self._wake.set()

    def view(self) -> SwarmOverview:
        """Read the swarm now.

        Raises:
            SwarmError: the DHT does not answer.
        """
        leases = self._directory.read(self._manifest)
        return make_overview(self._manifest, leases, now_s=self._clock.now_s())

    def recent_view(self, max_age_s: float) -> SwarmOverview:
        """The last view if it is recent, else a new one.

        Raises:
            SwarmError: the DHT does not answer.
        """
        latest = self.latest
        if latest is not None and self._clock.now_s() - latest.taken_at_s <= max_age_s:
            return latest
        return self.view()

    def renew(self) -> None:
        """Announce the lease now, and the manifest when it is due.

        Raises:
            SwarmError: the DHT does not answer.
        """
        now_s = self._clock.now_s()
        self._lease = self._describe(now_s, now_s + LEASE_TTL_S)
        self._directory.announce(self._lease)
        self.twins.announced(now_s=now_s)
        if now_s - self._published_at_s > MANIFEST_TTL_S / 3:
            self._directory.publish(self._manifest)
            self._published_at_s = now_s

    def stop(self, *, timeout_s: float, is_back_soon: bool = False) -> None:
        """End the thread, and withdraw the lease of a node that will not be back soon."""
        self._is_ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._lease is not None and not is_back_soon:
            try:
                self._directory.withdraw(self._lease)
            except SwarmError as exc:
                logger.warning("the lease could not be withdrawn, it lapses by itself: %s", exc)

    def _look_for_twin(self) -> None:
        """Read what stands in place of our lease before the next one replaces it."""
        now_s = self._clock.now_s()
        if self._lease is None or not self.twins.is_due(now_s=now_s):
            return
        try:
            leases = self._directory.read(self._manifest)
        except SwarmError as exc:  # the renewal that follows says whether that lasts
            logger.info("did not look for another node with this key: %s", exc)
            return
        self.twins.see(leases, self._lease, now_s=now_s)

    def _run(self) -> None:
        while not self._is_ending:
            self._look_for_twin()
            try:
                self.renew()
                self.latest = self.view()
                self._on_view(self.latest)
                self.problem = ""
            except SwarmError as exc:
                if not self.problem:
                    logger.warning("%s", exc)
                self.problem = str(exc)
            self._wake.wait(LEASE_RENEW_S)
            self._wake.clear()
