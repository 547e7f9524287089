"""Reads the swarm again and again, and keeps the newest view of each run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bootstrap.page.history import LossHistory
from bt_p2p.clock import Clock
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.limits import STOP_TIMEOUT_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from node.repeated_task import RepeatedTask

LOOK_PERIOD_S = 5.0
"""Half of the time in which nodes renew their leases."""
STALE_AGE_S = 20.0
"""A view this old is told to be old."""
MAX_FOUND_RUNS = 8
"""Without manifests of its own the peer shows so many of those that others have stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """One run at one moment."""

    overview: SwarmOverview
    history: LossHistory


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmView:
    """All runs at one moment."""

    peer_id: str
    addresses: tuple[str, ...]
    """Where this peer can be dialled, best first."""
    started_at_s: float
    runs: tuple[RunView, ...]
    age_s: float | None
    """Since the swarm was read; None before the first time."""
    now_s: float

    @property
    def is_stale(self) -> bool:
        """Whether it says little about the present."""
        return self.age_s is None or self.age_s > STALE_AGE_S


class SwarmBoard:
    """A thread that reads, and the newest view for everybody else."""

    def __init__(
        self,
        directory: Directory,
        manifests: Sequence[RunManifest],
        clock: Clock,
        *,
        peer_id: str,
        addresses: Callable[[], Sequence[str]],
    ) -> None:
        """Not reading before `start`.

        Args:
            directory: where leases are.
            manifests: of the runs to show; if empty, those found in the directory.
            clock: tells the time.
            peer_id: of this peer.
            addresses: asks where this peer can be dialled.
        """
        self._directory = directory
        self._manifests = tuple(manifests)
        self._clock = clock
        self._peer_id = peer_id
        self._ask_addresses = addresses
        self._addresses: tuple[str, ...] = ()
        self._started_at_s = clock.now_s()
        self._histories: dict[str, LossHistory] = {}
        self._runs: tuple[RunView, ...] = ()
        self._read_at_s: float | None = None
        self._lock = threading.Lock()
        self._task = RepeatedTask("board", self.look, period_s=LOOK_PERIOD_S)

    def start(self) -> None:
        """Begin to read."""
        self._task.start()

    def stop(self) -> None:
        """Read no more; idempotent."""
        self._task.stop(timeout_s=STOP_TIMEOUT_S / 8)

    def look(self) -> None:
        """Read once.

        Raises:
            SwarmError: the DHT does not answer.
        """
        addresses = tuple(self._ask_addresses())
        overviews = [
            make_overview(manifest, self._directory.read(manifest), now_s=self._clock.now_s())
            for manifest in self._manifests or self._found()
        ]
        with self._lock:
            self._histories = {
                overview.manifest.run_id: self._histories.get(overview.manifest.run_id)
                or LossHistory(len(overview.blocks))
                for overview in overviews
            }
            for overview in overviews:
                self._histories[overview.manifest.run_id].see(overview)
            self._runs = tuple(
                RunView(overview=overview, history=self._histories[overview.manifest.run_id])
                for overview in overviews
            )
            self._addresses = addresses
            self._read_at_s = self._clock.monotonic_s()

    def view(self) -> SwarmView:
        """What is known now."""
        with self._lock:
            age_s = None if self._read_at_s is None else self._clock.monotonic_s() - self._read_at_s
            return SwarmView(
                peer_id=self._peer_id,
                addresses=self._addresses,
                started_at_s=self._started_at_s,
                runs=self._runs,
                age_s=age_s,
                now_s=self._clock.now_s(),
            )

    def _found(self) -> list[RunManifest]:
        runs = self._directory.runs()
        return [runs[run_id] for run_id in sorted(runs)[:MAX_FOUND_RUNS]]
