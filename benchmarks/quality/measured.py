"""What is measured of one arm: curves, scores and costs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from benchmarks.quality.scoring import TextScore
from benchmarks.quality.training import JobRecord

ClockName = Literal["cpu", "wall"]


class _Measured(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CurvePoint(_Measured):
    """A training after some steps."""

    step: int
    cpu_s: float
    """Of its slowest worker until then."""
    wall_s: float
    """The same on the clock on the wall."""
    nats: float
    """Composition of all blocks, on the start of the validation text."""
    per_block_nats: tuple[float, ...]

    def seconds(self, clock: ClockName) -> float:
        """On the clock that counts."""
        return self.cpu_s if clock == "cpu" else self.wall_s


class SeedResult(_Measured):
    """One training."""

    seed: int
    curve: tuple[CurvePoint, ...]
    """In order of steps; the last point is the end."""
    final: dict[str, TextScore]
    """On every text in full, by short name."""
    workers: tuple[JobRecord, ...]
    """One for each block."""


class ArmResult(_Measured):
    """One arm under one budget."""

    arm: str
    objective: str
    num_blocks: int
    layers_per_block: int
    budget: str
    steps: int
    bytes_seen: int
    """By each block in its training."""
    seeds: tuple[SeedResult, ...]

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.arm} ({self.num_blocks} x {self.layers_per_block})"
