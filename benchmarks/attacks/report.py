"""Results -> JSON, Markdown and a picture."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.attacks.config import AttackConfig, Scenario
from benchmarks.replicas.report import SetUp


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class ScenarioResult(_Part):
    """One scenario and seed. Cross entropies are honest nats per byte, None where not finite."""

    scenario: Scenario
    seed: int
    final_nats: float | None
    """Mean over the honest replicas of what each serves, on the test text."""
    worst_nats: float | None
    curve: tuple[float | None, ...]
    """Of replica 0 after each round, on the validation text."""
    averages: int
    refused: int
    failed: int
    attackers_refused: int
    last_first_refusal: int | None
    wrongly_refused: int
    merge_ms: float
    judge_ms: float
    cpu_s: float


class AttackReport(_Part):
    """The whole of attacks.json."""

    set_up: SetUp
    config: AttackConfig
    results: tuple[ScenarioResult, ...]


def render_attacks(report: AttackReport) -> str:
    return ""


def draw_plot(report: AttackReport, path: Path) -> None:
    pass
