"""Does to volunteers what the plan says, and undoes it when its time is over."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from benchmarks.chaos.config import POISONS, FaultKind
from benchmarks.chaos.fleet import Fleet, Volunteer, now_s
from benchmarks.chaos.links import CutMode
from benchmarks.chaos.plan import PlannedFault
from node.demo.processes import DemoProcess

_GRACE_S = 15.0
"""A volunteer under SIGTERM ends within this time, on a busy machine too."""
_MAX_ATTACK_S = 90.0
_MAX_RECOVERY_S = 90.0
"""A fault that ends a process is over after this time, whatever has become of its victim."""
_NOTICED_S = 20.0
"""A node notices within this time that one of its children is gone."""
_SLOW_ONE_WAY_S = 0.1
_SLOW_BYTES_PER_S = 250_000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Injected:
    """A fault that came about."""

    at_s: float
    """Since the start of the faults."""
    until_s: float
    """When it was over; of those that end a process, when the victim trained again."""
    kind: FaultKind
    victim: str
    block: int
    detail: str


@dataclass(frozen=True, slots=True)
class _Begun:
    detail: str
    poll: Callable[[], bool]
    """Undoes it when it is due; True when it is over."""
    leaves_free: bool = False
    """The victim may suffer other faults meanwhile."""


@dataclass(frozen=True, slots=True)
class _Active:
    fault: PlannedFault
    victim: Volunteer
    begun: _Begun
    started_s: float


class Injector:
    """Injects one fault after another into a fleet."""

    def __init__(self, fleet: Fleet, plan: list[PlannedFault], say: Callable[[str], None]) -> None:
        """Start the client that sends garbage; nothing is disturbed before `tick`."""
        self._fleet = fleet
        self._plan = list(plan)
        self._say = say
        self._hostile = fleet.start_hostile()
        self._late: list[PlannedFault] = []
        self._over_at_s = max((fault.at_s for fault in plan), default=0.0)
        self._active: list[_Active] = []
        self._num_attackers = 0
        self.started_s = now_s()
        self.done: list[Injected] = []
        self.num_skipped = 0
        """Nobody was well, or the kind was not possible, from their time to the end of the plan."""
        self.slow_leavers: list[str] = []
        """Volunteers that did not end in time after SIGTERM."""

    @property
    def is_over(self) -> bool:
        """Whether the plan is through and everything is undone."""
        return not self._plan and not self._late and not self._active

    def tick(self) -> None:
        """Do what is due; call several times a second."""
        for active in list(self._active):
            if active.begun.poll():
                self._active.remove(active)
                self._note(active)
        while self._plan and self._plan[0].at_s <= now_s() - self.started_s:
            self._late.append(self._plan.pop(0))
        for fault in list(self._late):
            if self._begin(fault):
                self._late.remove(fault)
        if not self._plan and now_s() - self.started_s > self._over_at_s:
            self.num_skipped += len(self._late)
            self._late.clear()

    def _note(self, active: _Active) -> None:
        if not active.begun.leaves_free:
            active.victim.fault_until_s = now_s()
        self.done.append(
            Injected(
                at_s=active.started_s - self.started_s,
                until_s=now_s() - self.started_s,
                kind=active.fault.kind,
                victim=active.victim.name,
                block=active.victim.block,
                detail=active.begun.detail,
            )
        )

    def _begin(self, fault: PlannedFault) -> bool:
        well = [self._fleet.crew[number] for number in fault.victims]
        well = [each for each in well if each.is_well(now_s())]
        is_poisoning = any(active.fault.kind == "poison" for active in self._active)
        if not well or (fault.kind == "poison" and is_poisoning):
            return False
        victim = well[0]
        begin = {
            "kill": self._kill,
            "kill_child": self._kill_child,
            "freeze": self._freeze,
            "restart": self._restart,
            "cut_link": self._cut_link,
            "slow_link": self._slow_link,
            "bad_frames": self._bad_frames,
            "poison": self._poison,
            "full_disk": self._full_disk,
        }[fault.kind]
        started_s = now_s()
        begun = begin(fault, victim, started_s + fault.duration_s)
        if begun is None:
            return False
        if not begun.leaves_free:
            victim.fault_until_s = float("inf")
        self._active.append(_Active(fault, victim, begun, started_s))
        self._say(f"{fault.kind} {begun.detail} on {victim.name} (block {victim.block})")
        return True

    # --- kinds: each returns what was done, and how it ends -------------------------------------

    def _kill(self, fault: PlannedFault, victim: Volunteer, until_s: float) -> _Begun | None:
        family = victim.family()
        is_all = fault.choice < 0.5
        victim.is_meant_to_run = False
        for member in family if is_all else family[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()

        def poll() -> bool:
            if victim.is_meant_to_run:
                return _is_back(victim, until_s)
            if now_s() >= until_s and not victim.is_running:
                self._fleet.launch(victim)
            return False

        return _Begun("all processes" if is_all else "main process", poll)

    def _kill_child(self, fault: PlannedFault, victim: Volunteer, until_s: float) -> _Begun | None:
        children = victim.family()[1:]
        if not children:
            return None
        child = children[int(fault.choice * len(children))]
        with contextlib.suppress(psutil.NoSuchProcess):
            name = child.name()
            child.kill()
            return _Begun(name, lambda: _is_back(victim, until_s, after_s=_NOTICED_S))
        return None

    def _freeze(self, fault: PlannedFault, victim: Volunteer, until_s: float) -> _Begun | None:
        family = victim.family()
        is_all = fault.choice < 0.7
        members = family if is_all else family[:1]
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.suspend()

        def poll() -> bool:
            if now_s() < until_s:
                return False
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.resume()
            return True

        return _Begun(f"{'all' if is_all else 'main'} for {fault.duration_s:.0f} s", poll)

    def _restart(self, _fault: PlannedFault, victim: Volunteer, until_s: float) -> _Begun | None:
        assert victim.process is not None
        victim.is_meant_to_run = False
        victim.process.send(signal.SIGTERM)
        late_s = now_s() + _GRACE_S

        def poll() -> bool:
            if victim.is_meant_to_run:
                return _is_back(victim, until_s)
            if victim.is_running and now_s() > late_s:
                self.slow_leavers.append(victim.name)
                psutil.Process(victim.pid).kill()
            if not victim.is_running and now_s() >= until_s:
                self._fleet.launch(victim)
            return False

        return _Begun("SIGTERM", poll)

    def _cut_link(self, fault: PlannedFault, victim: Volunteer, until_s: float) -> _Begun | None:
        mode: CutMode = "reset" if fault.choice < 0.5 else "silence"
        self._fleet.links.cut(victim.link, mode)
        return _Begun(f"{mode} for {fault.duration_s:.0f} s", self._mended(victim, until_s))

    def _slow_link(self, fault: PlannedFault, victim: Volunteer, until_s: float) -> _Begun | None:
        self._fleet.links.slow(
            victim.link, one_way_s=_SLOW_ONE_WAY_S, bytes_per_s=_SLOW_BYTES_PER_S
        )
        return _Begun(f"for {fault.duration_s:.0f} s", self._mended(victim, until_s))

    def _mended(self, victim: Volunteer, until_s: float) -> Callable[[], bool]:
        def poll() -> bool:
            if now_s() < until_s:
                return False
            self._fleet.links.mend(victim.link)
            return True

        return poll

    def _bad_frames(self, fault: PlannedFault, victim: Volunteer, _until_s: float) -> _Begun | None:
        if not self._fleet.order_garbage(self._hostile, victim, int(fault.choice * 2**32)):
            return None
        return _Begun("50 streams", lambda: True)

    def _full_disk(self, fault: PlannedFault, victim: Volunteer, until_s: float) -> _Begun | None:
        self._fleet.fill_disk(victim)

        def poll() -> bool:
            if now_s() < until_s:
                return False
            self._fleet.free_disk(victim)
            return True

        return _Begun(f"for {fault.duration_s:.0f} s", poll)

    def _poison(self, fault: PlannedFault, victim: Volunteer, _until_s: float) -> _Begun | None:
        """An attacker of the victim's block, until it has been in a round with others."""
        poison = POISONS[int(fault.choice * len(POISONS))]
        self._num_attackers += 1
        attacker = self._fleet.start_attacker(
            f"attacker-{self._num_attackers}", poison, victim.block
        )
        late_s = now_s() + _MAX_ATTACK_S

        def poll() -> bool:
            if not _has_attacked(attacker) and attacker.is_running and now_s() < late_s:
                return False
            attacker.send(signal.SIGKILL)
            return True

        return _Begun(poison, poll, leaves_free=True)


def _is_back(victim: Volunteer, since_s: float, *, after_s: float = 0.0) -> bool:
    """Whether a victim trains again, or nobody should wait for it any longer."""
    waited_s = now_s() - since_s
    return waited_s > _MAX_RECOVERY_S or (waited_s >= after_s and victim.is_training)


def _has_attacked(attacker: DemoProcess) -> bool:
    snapshot = attacker.snapshot
    return snapshot is not None and snapshot.rounds_averaged + snapshot.rounds_failed > 0
