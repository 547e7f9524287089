"""Curves of the loss as the coordinates of an SVG; the template of the page draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 720
HEIGHT = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 10, 30
MAX_LOSS = 8.0
"""Nats per byte at the upper edge; guessing has 5.55. So no report makes the others a flat line."""
_NUM_TICKS = 4
NUM_COLOURS = 8
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A line across, or a number below."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One block."""

    block: int
    colour: int
    points: str
    """As the attribute of a polyline."""
    last_x: float
    last_y: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """What to draw."""

    curves: tuple[Curve, ...]
    losses: tuple[Tick, ...]
    rounds: tuple[Tick, ...]


def make_chart(losses: Sequence[tuple[int, Sequence[tuple[int, float]]]]) -> Chart | None:
    """The chart of a run; None while there is nothing to draw.

    Args:
        losses: block, and its rounds and losses, oldest first.
    """
    drawn = [
        (block, [(float(index), min(loss, MAX_LOSS)) for index, loss in points])
        for block, points in losses
        if points
    ]
    if not drawn:
        return None
    rounds = [index for _, points in drawn for index, _ in points]
    values = [loss for _, points in drawn for _, loss in points]
    first, last = min(rounds), max(max(rounds), min(rounds) + 1)
    ticks = _ticks(min(values), max(values))
    low, high = ticks[0], ticks[-1]

    def x(index: float) -> float:
        return round(_LEFT + (index - first) / (last - first) * (WIDTH - _LEFT - _RIGHT), 1)

    def y(loss: float) -> float:
        return round(_TOP + (high - loss) / (high - low) * (HEIGHT - _TOP - _BOTTOM), 1)

    return Chart(
        curves=tuple(
            Curve(
                block=block,
                colour=block % NUM_COLOURS,
                points=" ".join(f"{x(index)},{y(loss)}" for index, loss in points),
                last_x=x(points[-1][0]),
                last_y=y(points[-1][1]),
            )
            for block, points in drawn
        ),
        losses=tuple(Tick(at=y(tick), label=f"{tick:.4g}") for tick in ticks),
        rounds=(
            Tick(at=x(first), label=f"round {first:.0f}"),
            Tick(at=x(last), label=f"round {last:.0f}"),
        ),
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that enclose a range, in equal steps."""
    span = max(high - low, 0.01)
    power = 10.0 ** math.floor(math.log10(span / _NUM_TICKS))
    step = next(factor * power for factor in _STEPS if factor * power * _NUM_TICKS >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, max(last, first + 1) + 1)]
