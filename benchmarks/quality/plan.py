"""Trainings, the jobs they consist of, and when each saves what. Pure; needs no torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.config import Arm, Budget, QualityConfig
from bt_p2p.protocol.manifest import CorpusSpec, RunManifest

FORMAT = 1
"""Of a training's folder; another one begins anew."""
END_TO_END = "end_to_end"
CASCADE = "cascade"
_HASH_CHARS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """All blocks of one arm, budget and seed."""

    arm: Arm
    budget: Budget
    seed: int
    manifest: RunManifest
    steps_per_round: int
    eval_steps: tuple[int, ...]
    """Steps after which weights are kept for the curve; the last is the end."""
    device: str
    bf16: bool
    compile: bool

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.arm.name} {self.budget.name} seed {self.seed}"

    @property
    def is_cascade(self) -> bool:
        """Whether a block reads the features of those below it."""
        return self.manifest.objective.name == CASCADE

    @property
    def folder_name(self) -> str:
        """Readable, and with a hash of everything that determines the weights and their times."""
        facts = {
            "format": FORMAT,
            "arm": self.arm.name,
            "manifest": self.manifest.fingerprint,
            "steps": self.budget.steps,
            "steps_per_round": self.steps_per_round,
            "eval_steps": self.eval_steps,
            "refresh_steps": self.arm.refresh_steps if self.is_cascade else 0,
            "device": self.device,
            "bf16": self.bf16,
            "compile": self.compile,
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return f"{self.arm.name}-{self.budget.name}-s{self.seed}-{digest[:_HASH_CHARS]}"

    def peer_id(self, block: int) -> str:
        """Whose order of the data a block trains in: every block has its own."""
        return f"{self.arm.name}/{block}"

    def block_folder(self, jobs: Path, block: int) -> Path:
        """Where the job of a block keeps everything."""
        return jobs / self.folder_name / f"block-{block}"

    def weights_path(self, jobs: Path, block: int, step: int) -> Path:
        """The weights of a block after a step."""
        return self.block_folder(jobs, block) / f"step-{step:07}.safetensors"

    def done_path(self, jobs: Path, block: int) -> Path:
        """Written last by a job, so that it is not run again."""
        return self.block_folder(jobs, block) / "done.json"

    def is_done(self, jobs: Path) -> bool:
        """Whether the jobs of all blocks are finished."""
        blocks = range(self.manifest.model.num_blocks)
        return all(self.done_path(jobs, block).is_file() for block in blocks)

    def kept_steps(self, block: int) -> frozenset[int]:
        """Steps after which the weights of a block are kept, for the curve and for other blocks."""
        is_read = self.is_cascade and block + 1 < self.manifest.model.num_blocks
        refreshes = range(self.arm.refresh_steps, self.budget.steps, self.arm.refresh_steps)
        return frozenset(self.eval_steps) | (frozenset(refreshes) if is_read else frozenset())


def plan_trainings(config: QualityConfig, corpus: CorpusSpec) -> list[Training]:
    """Everything a config asks for.

    Raises:
        ConfigError: an arm makes no valid manifest.
    """
    return [
        Training(
            arm=arm,
            budget=budget,
            seed=seed,
            manifest=config.manifest(arm, budget, seed, corpus),
            steps_per_round=config.steps_per_round,
            eval_steps=eval_steps(budget.steps, config.evals),
            device=config.device,
            bf16=config.bf16,
            compile=config.compile,
        )
        for arm in config.arms
        for budget in config.budgets_of(arm)
        for seed in config.seeds_of(arm)
    ]


def eval_steps(num_steps: int, num_evals: int) -> tuple[int, ...]:
    """Steps of the points of a curve, evenly spread; the last is the end."""
    points = {-(-index * num_steps // num_evals) for index in range(1, num_evals + 1)}
    return tuple(sorted(points))


def upstream_step(step: int, refresh_steps: int) -> int:
    """Of which step the frozen copies are that a block reads at a step of its own.

    The blocks of a cascade are trained one after another here, but as if side by side: at step s
    every block below is as it was at the newest refresh, up to refresh_steps - 1 steps ago.
    """
    return step // refresh_steps * refresh_steps
