"""A swarm seen from outside: rounds, crashes, stalls and leaks, from what the nodes write."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from statistics import fmean

import psutil

from benchmarks.chaos.fleet import Fleet, Volunteer, now_s
from benchmarks.chaos.plan import is_steady
from node.snapshot import NodeSnapshot

_CURVE_EVERY_S = 5.0
_SIZES_EVERY_S = 10.0
_STALL_AFTER_S = 60.0
"""A node that writes no news for so long, well after its last fault, hangs."""
_DISTURBED_S = 45.0
"""Nodes may be silent that long after a fault: a start on a busy machine takes as long."""
_MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Missed:
    """A round that ended without the expected average for at least one replica of a block."""

    at_s: float
    block: int
    slot: int
    """Rounds since the epoch."""
    volunteer: str
    """The first that told of it; one that suffered no fault in it, if there was any."""
    outcome: str
    is_own_fault: bool
    """Whether only replicas that suffered a fault in it missed it."""
    is_lost: bool
    """No replica of the block got an average in this round, though one without a fault expected it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Of a curve."""

    at_s: float
    loss: float
    """Training loss, mean over volunteers that train; nats per byte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Of all processes of one volunteer."""

    at_s: float
    rss_mib: float
    num_fds: int
    num_processes: int


@dataclass(slots=True)
class Counts:
    """Rounds of one life of a volunteer."""

    averaged: int = 0
    alone: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Watched:
    volunteer: Volunteer
    lives: dict[int, Counts] = field(default_factory=dict)
    sizes: list[Sizes] = field(default_factory=list)
    is_stall_told: bool = False


class Watch:
    """Looks at one fleet, several times a second.

    Attributes:
        crashes: volunteers that ended without being told to, with the end of their output.
        stalls: volunteers that run and write no news.
        curve: the training loss.
    """

    def __init__(self, fleet: Fleet) -> None:
        """Look from now on, when all train."""
        self._fleet = fleet
        self._watched = [_Watched(volunteer) for volunteer in fleet.crew]
        self._curve_at_s = self._sizes_at_s = float("-inf")
        self.started_s = now_s()
        self.crashes: list[str] = []
        self.stalls: list[str] = []
        self._missed: dict[tuple[int, int], Missed] = {}
        self._averaged: set[tuple[int, int]] = set()
        self.curve: list[Point] = []

    def tick(self) -> None:
        """Look once; a volunteer that has crashed is written down and started again."""
        for watched in self._watched:
            self._look_for_crash(watched.volunteer)
            snapshot = watched.volunteer.snapshot
            if snapshot is not None:
                self._count_rounds(watched, snapshot)
                self._look_for_stall(watched, snapshot)
        at_s = now_s()
        if at_s - self._curve_at_s >= _CURVE_EVERY_S:
            self._curve_at_s = at_s
            self._add_point()
        if at_s - self._sizes_at_s >= _SIZES_EVERY_S:
            self._sizes_at_s = at_s
            for number, watched in enumerate(self._watched):
                if is_steady(number, self._fleet.config):
                    self._measure(watched)

    def missed(self) -> tuple[Missed, ...]:
        """Rounds that somebody missed, one for each block and slot."""
        return tuple(
            replace(missed, is_lost=not missed.is_own_fault and slot not in self._averaged)
            for slot, missed in self._missed.items()
        )

    def totals(self) -> Counts:
        """Rounds of all lives of all volunteers."""
        lives = [counts for watched in self._watched for counts in watched.lives.values()]
        return Counts(
            averaged=sum(counts.averaged for counts in lives),
            alone=sum(counts.alone for counts in lives),
            failed=sum(counts.failed for counts in lives),
        )

    def sizes(self) -> dict[str, list[Sizes]]:
        """Of the volunteers that live as long as the run, by name."""
        return {each.volunteer.name: each.sizes for each in self._watched if each.sizes}

    def _look_for_crash(self, volunteer: Volunteer) -> None:
        if not volunteer.is_meant_to_run or volunteer.is_running:
            return
        assert volunteer.process is not None
        self.crashes.append(
            f"{volunteer.name} at {now_s() - self.started_s:.0f} s, exit code "
            f"{volunteer.process.exit_code}: {volunteer.process.last_lines(2)}"
        )
        self._fleet.launch(volunteer)

    def _count_rounds(self, watched: _Watched, snapshot: NodeSnapshot) -> None:
        counts = watched.lives.setdefault(snapshot.pid, Counts())
        slot = (watched.volunteer.block, int(snapshot.updated_at_s / self._fleet.config.round_s))
        if snapshot.rounds_averaged > counts.averaged:
            self._averaged.add(slot)
        if snapshot.rounds_failed > counts.failed:
            self._note_missed(slot, watched.volunteer, snapshot)
        counts.averaged = snapshot.rounds_averaged
        counts.alone = snapshot.rounds_alone
        counts.failed = snapshot.rounds_failed

    def _note_missed(
        self, slot: tuple[int, int], volunteer: Volunteer, snapshot: NodeSnapshot
    ) -> None:
        is_own_fault = now_s() < volunteer.fault_until_s + self._fleet.config.round_s
        known = self._missed.get(slot)
        if known is not None and (is_own_fault or not known.is_own_fault):
            return
        self._missed[slot] = Missed(
            at_s=now_s() - self.started_s,
            block=slot[0],
            slot=slot[1],
            volunteer=volunteer.name,
            outcome=snapshot.last_outcome,
            is_own_fault=is_own_fault,
            is_lost=not is_own_fault,
        )

    def _look_for_stall(self, watched: _Watched, snapshot: NodeSnapshot) -> None:
        volunteer = watched.volunteer
        if volunteer.recovered_at_s is None or now_s() < volunteer.fault_until_s + _DISTURBED_S:
            watched.is_stall_told = False
            return
        silent_s = time.time() - snapshot.updated_at_s
        if silent_s > _STALL_AFTER_S and not watched.is_stall_told:
            watched.is_stall_told = True
            self.stalls.append(
                f"{volunteer.name} at {now_s() - self.started_s:.0f} s: no news for "
                f"{silent_s:.0f} s in state {snapshot.state}"
            )

    def _add_point(self) -> None:
        snapshots = [watched.volunteer.snapshot for watched in self._watched]
        losses = [
            snapshot.loss
            for snapshot in snapshots
            if snapshot is not None and snapshot.loss is not None
        ]
        if losses:
            self.curve.append(Point(at_s=now_s() - self.started_s, loss=fmean(losses)))

    def _measure(self, watched: _Watched) -> None:
        family = watched.volunteer.family()
        rss_bytes = num_fds = 0
        for member in family:
            with contextlib.suppress(psutil.Error):
                rss_bytes += member.memory_info().rss
                num_fds += member.num_fds()
        watched.sizes.append(
            Sizes(
                at_s=now_s() - self.started_s,
                rss_mib=round(rss_bytes / _MIB, 1),
                num_fds=num_fds,
                num_processes=len(family),
            )
        )


def drift(values: list[float]) -> float | None:
    """By which share the last quarter is above the second one; None if there is too little."""
    quarter = len(values) // 4
    if quarter < 2:
        return None
    early = fmean(values[quarter : 2 * quarter])
    return fmean(values[-quarter:]) / early - 1 if early else None
