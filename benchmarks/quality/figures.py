"""Gaps and means. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from benchmarks.quality.measured import ArmResult, ClockName, CurvePoint, SeedResult
from benchmarks.quality.plan import END_TO_END


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A curve at a time."""

    nats: float
    is_at_end: bool
    """The curve ends before that time, and this is its last point."""


class EqualTime(BaseModel):
    """Against end to end after as many seconds as the arm's slowest worker took."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float
    """That the arm's slowest worker took, mean of seeds."""
    gap_nats: float | None
    """To end to end under the same budget, whose learning rate is not down yet at that time."""
    is_at_end: bool
    """End to end was done by then, at least for one seed."""
    best_gap_nats: float | None
    """To the best of all trainings end to end at that time, whatever their budget."""


class Comparison(BaseModel):
    """An arm against end to end. Means over the seeds that both have; None where there are none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: str
    budget: str
    mean_nats: dict[str, float]
    """By text."""
    mean_bits_per_byte: dict[str, float]
    gap_nats: dict[str, float | None]
    """By text, at equal steps; positive is worse than end to end."""
    equal_time: EqualTime
    num_parameters: int
    """Of one worker."""
    parameters_share: float | None
    """Of the end-to-end model's."""
    optimizer_size_bytes: int
    """Measured, of one worker."""
    optimizer_share: float | None
    upstream_size_bytes: int
    """Frozen copies of the blocks below, of the worker that has most of them."""
    cpu_s: float
    """Of the slowest worker, mean of seeds."""
    wall_s: float


def nats_at(curve: Sequence[CurvePoint], seconds: float, clock: ClockName) -> Reading | None:
    """A curve at a time, between its points on straight lines.

    Returns:
        None before the first point, where nothing is known.
    """
    if not curve or seconds < curve[0].seconds(clock):
        return None
    for before, after in itertools.pairwise(curve):
        start_s, end_s = before.seconds(clock), after.seconds(clock)
        if start_s <= seconds < end_s:
            share = (seconds - start_s) / (end_s - start_s)
            return Reading(nats=before.nats + share * (after.nats - before.nats), is_at_end=False)
    last = curve[-1]
    return Reading(nats=last.nats, is_at_end=seconds > last.seconds(clock))


def best_nats_at(
    curves: Iterable[Sequence[CurvePoint]], seconds: float, clock: ClockName
) -> float | None:
    """The lowest of several curves at a time; None if all begin later."""
    readings = [nats_at(curve, seconds, clock) for curve in curves]
    return min((reading.nats for reading in readings if reading is not None), default=None)


def compare(arms: Sequence[ArmResult], clock: ClockName) -> tuple[Comparison, ...]:
    """Every arm against the arm whose objective is end_to_end, if there is one."""
    return tuple(_compare(arm, arms, clock) for arm in arms)


def mean_curve(arm: ArmResult, clock: ClockName) -> tuple[list[int], list[float], list[float]]:
    """Steps, seconds and nats, each the mean over the seeds at the same step."""
    by_point = list(zip(*(seed.curve for seed in arm.seeds), strict=True))
    return (
        [points[0].step for points in by_point],
        [fmean(point.seconds(clock) for point in points) for points in by_point],
        [fmean(point.nats for point in points) for points in by_point],
    )


def _compare(arm: ArmResult, arms: Sequence[ArmResult], clock: ClockName) -> Comparison:
    references = [other for other in arms if other.objective == END_TO_END]
    reference = next((other for other in references if other.budget == arm.budget), None)
    workers = [worker for seed in arm.seeds for worker in seed.workers]
    texts = list(arm.seeds[0].final)
    whole = references[0].seeds[0].workers[0] if references else None
    num_parameters = max(worker.num_parameters for worker in workers)
    optimizer_size_bytes = max(worker.optimizer_size_bytes for worker in workers)
    return Comparison(
        arm=arm.arm,
        budget=arm.budget,
        mean_nats={text: fmean(seed.final[text].nats for seed in arm.seeds) for text in texts},
        mean_bits_per_byte={
            text: fmean(seed.final[text].bits_per_byte for seed in arm.seeds) for text in texts
        },
        gap_nats={text: _gap(arm, reference, text) for text in texts},
        equal_time=_equal_time(arm, reference, references, clock),
        num_parameters=num_parameters,
        parameters_share=num_parameters / whole.num_parameters if whole else None,
        optimizer_size_bytes=optimizer_size_bytes,
        optimizer_share=optimizer_size_bytes / whole.optimizer_size_bytes if whole else None,
        upstream_size_bytes=max(worker.upstream_size_bytes for worker in workers),
        cpu_s=_slowest_s(arm, "cpu"),
        wall_s=_slowest_s(arm, "wall"),
    )


def _slowest_s(arm: ArmResult, clock: ClockName) -> float:
    return fmean(seed.curve[-1].seconds(clock) for seed in arm.seeds)


def _gap(arm: ArmResult, reference: ArmResult | None, text: str) -> float | None:
    if reference is None:
        return None
    theirs = {seed.seed: seed.final[text].nats for seed in reference.seeds}
    gaps = [seed.final[text].nats - theirs[seed.seed] for seed in arm.seeds if seed.seed in theirs]
    return fmean(gaps) if gaps else None


def _equal_time(
    arm: ArmResult,
    reference: ArmResult | None,
    references: Sequence[ArmResult],
    clock: ClockName,
) -> EqualTime:
    gaps, best_gaps, is_at_end = [], [], False
    for seed in arm.seeds:
        end = seed.curve[-1]
        own = _of_seed([reference] if reference else [], seed)
        reading = nats_at(own[0], end.seconds(clock), clock) if own else None
        if reading is not None:
            gaps.append(end.nats - reading.nats)
            is_at_end |= reading.is_at_end
        best = best_nats_at(_of_seed(references, seed), end.seconds(clock), clock)
        if best is not None:
            best_gaps.append(end.nats - best)
    return EqualTime(
        seconds=_slowest_s(arm, clock),
        gap_nats=fmean(gaps) if gaps else None,
        is_at_end=is_at_end,
        best_gap_nats=fmean(best_gaps) if best_gaps else None,
    )


def _of_seed(arms: Sequence[ArmResult], wanted: SeedResult) -> list[tuple[CurvePoint, ...]]:
    return [seed.curve for arm in arms for seed in arm.seeds if seed.seed == wanted.seed]
