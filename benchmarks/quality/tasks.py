"""Everything there is to do, in an order that respects what needs what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.quality.plan import Training
from benchmarks.quality.scoring import missing_scores, score_training
from benchmarks.quality.texts import Texts
from benchmarks.quality.training import JobContext, train_block
from bt_p2p.model.sizes import block_sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One job, or all missing scores of one training."""

    kind: Literal["train", "score"]
    training: Training
    block: int | None
    """To train; None for scores."""
    curve_bytes: int
    num_units: int
    """Steps to train, or bytes to score."""
    unit_flops: float
    """What a unit costs, roughly: for the time left."""

    @property
    def key(self) -> str:
        """Names the task among all."""
        what = "scores" if self.block is None else str(self.block)
        return f"{self.training.folder_name}/{what}"

    @property
    def title(self) -> str:
        """For people."""
        what = "scores" if self.block is None else f"block {self.block}"
        return f"{self.training.title} {what}"

    @property
    def flops(self) -> float:
        """What all of it costs."""
        return self.num_units * self.unit_flops

    @property
    def needs(self) -> frozenset[str]:
        """Tasks that have to be finished before."""
        num_blocks = self.training.manifest.model.num_blocks
        last = num_blocks if self.block is None else self.block
        if self.block is not None and not self.training.is_cascade:
            return frozenset()
        return frozenset(f"{self.training.folder_name}/{block}" for block in range(last))


def open_tasks(
    trainings: Iterable[Training], texts: Texts, *, curve_bytes: int, jobs: Path
) -> list[Task]:
    """What is still to be done for these trainings."""
    tasks = []
    for training in trainings:
        manifest = training.manifest
        sizes = block_sizes(
            manifest.model, manifest.objective, batch_size=manifest.optimizer.batch_size
        )
        step_bytes = manifest.optimizer.batch_size * manifest.model.context
        for block in range(manifest.model.num_blocks):
            if training.done_path(jobs, block).is_file():
                continue
            below = block if training.is_cascade else 0
            flops = sizes.train_flops_per_byte + below * sizes.forward_flops_per_byte
            tasks.append(
                Task(
                    kind="train",
                    training=training,
                    block=block,
                    curve_bytes=curve_bytes,
                    num_units=training.budget.steps,
                    unit_flops=float(step_bytes * flops),
                )
            )
        missing = missing_scores(training, texts, curve_bytes, jobs)
        if missing:
            tasks.append(
                Task(
                    kind="score",
                    training=training,
                    block=None,
                    curve_bytes=curve_bytes,
                    num_units=sum(score.data.size for score in missing),
                    unit_flops=float(sizes.forward_flops_per_byte * manifest.model.num_blocks),
                )
            )
    return tasks


def urgency(tasks: Iterable[Task]) -> Mapping[str, float]:
    """FLOPs of the longest chain of tasks that begins with each: the largest goes first."""
    found: dict[str, float] = {}
    ordered = list(tasks)  # a task comes after those it needs
    for task in reversed(ordered):
        later = [found[other.key] for other in ordered if task.key in other.needs]
        found[task.key] = task.flops + max(later, default=0.0)
    return found


def perform(task: Task, context: JobContext) -> bool:
    """Do a task; True if it is finished, False if it was stopped before.

    Raises:
        BtError: what failed.
    """
    if task.block is not None:
        return train_block(task.training, task.block, context)
    wanted = missing_scores(task.training, context.texts, task.curve_bytes, context.jobs)
    return score_training(task.training, wanted, context)
