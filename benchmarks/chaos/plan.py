"""What happens when, from a seed alone. Whom it hits is drawn too, as an order of preference."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from benchmarks.chaos.config import ChaosConfig, FaultKind

_DURATIONS_S: dict[FaultKind, tuple[float, float]] = {
    "kill": (0.5, 5.0),
    "kill_child": (0.0, 0.0),
    "freeze": (1.0, 12.0),
    "restart": (0.0, 2.0),
    "cut_link": (3.0, 15.0),
    "slow_link": (8.0, 20.0),
    "bad_frames": (0.0, 0.0),
    "poison": (0.0, 0.0),
    "full_disk": (6.0, 15.0),
}
"""From and to; of `kill` and `restart`, the time until the program is started again."""
_DISRUPTIVE: frozenset[FaultKind] = frozenset({"kill", "kill_child", "restart"})
"""End a process, so that they are not done to those that are watched for leaks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedFault:
    """One fault before it is known who is there to suffer it."""

    at_s: float
    """Since the start of the faults."""
    kind: FaultKind
    victims: tuple[int, ...]
    """Volunteers by number; the first that is well gets it."""
    duration_s: float
    choice: float
    """From 0 to 1, for whatever else there is to choose."""


def make_plan(config: ChaosConfig) -> list[PlannedFault]:
    """All faults of a run: the same for the same config."""
    random = Random(config.seed)  # noqa: S311 - repeatable on purpose
    kinds = _deal(config)
    random.shuffle(kinds)
    num_volunteers = config.num_blocks * config.replicas
    plan = []
    for number, kind in enumerate(kinds):
        victims = list(range(num_volunteers))
        random.shuffle(victims)
        if kind in _DISRUPTIVE:
            victims = [each for each in victims if not is_steady(each, config)]
        low_s, high_s = _DURATIONS_S[kind]
        plan.append(
            PlannedFault(
                at_s=(number + random.random()) * config.fault_every_s,
                kind=kind,
                victims=tuple(victims),
                duration_s=random.uniform(low_s, high_s),
                choice=random.random(),
            )
        )
    return plan


def _deal(config: ChaosConfig) -> list[FaultKind]:
    """As many kinds as there are faults, each as often as its share says, to a fault."""
    total = sum(config.shares.values())
    kinds: list[FaultKind] = []
    passed = 0.0
    for kind, share in config.shares.items():
        passed += share
        kinds += [kind] * (round(config.num_faults * passed / total) - len(kinds))
    return kinds


def is_steady(volunteer: int, config: ChaosConfig) -> bool:
    """Whether a volunteer's processes live as long as the run; one of each block does."""
    return volunteer < config.num_blocks


def block_of(volunteer: int, config: ChaosConfig) -> int:
    """Which block a volunteer trains."""
    return volunteer % config.num_blocks
