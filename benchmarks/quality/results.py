"""Everything that was measured, as it is written to results.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.quality.config import QualityConfig
from benchmarks.quality.figures import Comparison, compare
from benchmarks.quality.machine import Code, Machine
from benchmarks.quality.measured import ArmResult, ClockName, CurvePoint, SeedResult
from benchmarks.quality.plan import Training
from benchmarks.quality.scoring import TextScore, curve_scores, final_scores, read_score
from benchmarks.quality.texts import VALID, Texts, text_hash
from benchmarks.quality.training import read_record


class TextFacts(BaseModel):
    """A text that was used."""

    model_config = ConfigDict(frozen=True)

    name: str
    size_bytes: int
    sha256: str


class Results(BaseModel):
    """The whole of results.json."""

    model_config = ConfigDict(frozen=True)

    config_name: str
    config: QualityConfig
    clock: ClockName
    """Which seconds count: on a CPU those of the one thread, which others do not lengthen."""
    texts: dict[str, TextFacts]
    curve_bytes: int
    """Bytes of the validation text that curves are scored on."""
    notes: tuple[str, ...]
    """What a reader has to know."""
    machine: Machine
    code: Code
    date: str
    command: str
    arms: tuple[ArmResult, ...]
    comparisons: tuple[Comparison, ...]
    """One for each of `arms`."""


def collect_arms(
    trainings: Sequence[Training], texts: Texts, *, curve_bytes: int, jobs: Path
) -> tuple[ArmResult, ...]:
    """What finished trainings have shown; those without all their scores are left out."""
    found: dict[tuple[str, str], list[tuple[Training, SeedResult]]] = {}
    for training in trainings:
        result = _seed_result(training, texts, curve_bytes, jobs)
        if result is not None:
            key = (training.arm.name, training.budget.name)
            found.setdefault(key, []).append((training, result))
    return tuple(
        _arm_result(pairs[0][0], tuple(result for _, result in pairs)) for pairs in found.values()
    )


def _arm_result(training: Training, seeds: tuple[SeedResult, ...]) -> ArmResult:
    manifest = training.manifest
    step_bytes = manifest.optimizer.batch_size * manifest.model.context
    return ArmResult(
        arm=training.arm.name,
        objective=manifest.objective.name,
        num_blocks=manifest.model.num_blocks,
        layers_per_block=manifest.model.layers_per_block,
        budget=training.budget.name,
        steps=training.budget.steps,
        bytes_seen=training.budget.steps * step_bytes,
        seeds=seeds,
    )


def _seed_result(
    training: Training, texts: Texts, curve_bytes: int, jobs: Path
) -> SeedResult | None:
    if not training.is_done(jobs):
        return None
    workers = tuple(
        read_record(training.done_path(jobs, block))
        for block in range(training.manifest.model.num_blocks)
    )
    curve = []
    for wanted in curve_scores(training, texts, curve_bytes):
        score = read_score(wanted.path(training, jobs))
        if score is None:
            return None
        moments = [
            moment for worker in workers for moment in worker.moments if moment.step == wanted.step
        ]
        curve.append(
            CurvePoint(
                step=wanted.step,
                cpu_s=max(moment.cpu_s for moment in moments),
                wall_s=max(moment.wall_s for moment in moments),
                nats=score.nats,
                per_block_nats=score.per_block_nats,
            )
        )
    final: dict[str, TextScore] = {}
    for wanted in final_scores(training, texts):
        score = read_score(wanted.path(training, jobs))
        if score is None:
            return None
        final[wanted.text] = score
    return SeedResult(seed=training.seed, curve=tuple(curve), final=final, workers=workers)


def notes_on(
    arms: Sequence[ArmResult], trainings: Sequence[Training], texts: Texts
) -> tuple[str, ...]:
    """What a reader has to know of these results."""
    notes = [texts.note] if texts.note else []
    num_shown = sum(len(arm.seeds) for arm in arms)
    if num_shown < len(trainings):
        notes.append(f"Not finished: {num_shown} of {len(trainings)} trainings are in this report.")
    workers = [worker for arm in arms for seed in arm.seeds for worker in seed.workers]
    versions = {worker.code for worker in workers}
    if len(versions) > 1:
        notes.append(
            f"The trainings were made by {len(versions)} versions of the library's code "
            f"(model, objective, training): {', '.join(sorted(versions))}."
        )
    num_bad = sum(worker.bad_steps for worker in workers)
    if num_bad:
        notes.append(f"{num_bad} training steps were skipped because they were not finite.")
    return tuple(notes)


def make_results(
    *,
    config_name: str,
    config: QualityConfig,
    trainings: Sequence[Training],
    texts: Texts,
    jobs: Path,
    machine: Machine,
    code: Code,
    date: str,
    command: str,
) -> Results:
    """Everything that is finished, and how it compares."""
    arms = collect_arms(trainings, texts, curve_bytes=config.curve_bytes, jobs=jobs)
    clock: ClockName = "cpu" if config.device == "cpu" else "wall"
    facts = {
        "train": TextFacts(
            name=texts.names["train"], size_bytes=texts.train.size, sha256=text_hash(texts.train)
        )
    }
    facts |= {
        name: TextFacts(name=texts.names[name], size_bytes=data.size, sha256=text_hash(data))
        for name, data in texts.scored.items()
    }
    return Results(
        config_name=config_name,
        config=config,
        clock=clock,
        texts=facts,
        curve_bytes=min(config.curve_bytes, texts.scored[VALID].size),
        notes=notes_on(arms, trainings, texts),
        machine=machine,
        code=code,
        date=date,
        command=command,
        arms=arms,
        comparisons=compare(arms, clock),
    )
