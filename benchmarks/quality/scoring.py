"""Cross entropies of a finished training: its curve, and its last weights on every text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.quality.plan import Training
from benchmarks.quality.texts import VALID, Texts, text_hash
from benchmarks.quality.training import JobContext, load_weights, write_atomically
from bt_p2p.evaluation import score_blocks
from bt_p2p.model.block import Block, initial_block


class TextScore(BaseModel):
    """Nats per byte over a text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nats: float
    """Of the composition of all blocks."""
    bits_per_byte: float
    per_block_nats: tuple[float, ...]
    """Of each block alone."""
    num_bytes: int
    """Bytes scored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """One score that a training needs."""

    step: int
    text: str
    """Short name."""
    data: NDArray[np.uint8]

    def path(self, training: Training, jobs: Path) -> Path:
        """Where the score is kept."""
        name = f"{self.step:07}-{self.text}-{self.data.size}-{text_hash(self.data)[:12]}.json"
        return jobs / training.folder_name / "scores" / name


def curve_scores(training: Training, texts: Texts, curve_bytes: int) -> list[Wanted]:
    """The points of a training's curve, on the start of the validation text."""
    data = texts.scored[VALID][:curve_bytes]
    return [Wanted(step=step, text=VALID, data=data) for step in training.eval_steps]


def final_scores(training: Training, texts: Texts) -> list[Wanted]:
    """The last weights on every text in full."""
    step = training.eval_steps[-1]
    return [Wanted(step=step, text=text, data=data) for text, data in texts.scored.items()]


def missing_scores(training: Training, texts: Texts, curve_bytes: int, jobs: Path) -> list[Wanted]:
    """What is still to be scored, each once."""
    wanted = [*curve_scores(training, texts, curve_bytes), *final_scores(training, texts)]
    by_path = {score.path(training, jobs): score for score in wanted}
    return [score for path, score in by_path.items() if read_score(path) is None]


def read_score(path: Path) -> TextScore | None:
    """A score taken before, or None."""
    try:
        return TextScore.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def score_training(training: Training, wanted: list[Wanted], context: JobContext) -> bool:
    """Take these scores and keep them; True if all were taken, False if it was stopped.

    Raises:
        CheckpointError: weights are missing, or the disk is full.
    """
    done_bytes = 0
    for step, blocks in _blocks_by_step(training, wanted, context.jobs):
        for score in wanted:
            if score.step != step:
                continue
            found = score_blocks(training.manifest, blocks, score.data)
            kept = TextScore(
                nats=found.final_nats,
                bits_per_byte=found.bits_per_byte,
                per_block_nats=found.per_block_nats,
                num_bytes=found.num_bytes,
            )
            write_atomically(score.path(training, context.jobs), kept.model_dump_json() + "\n")
            done_bytes += score.data.size
            context.on_progress(done_bytes)
            if context.is_stopped():
                return False
    return True


def _blocks_by_step(
    training: Training, wanted: list[Wanted], jobs: Path
) -> Iterator[tuple[int, list[Block]]]:
    manifest = training.manifest
    for step in sorted({score.step for score in wanted}):
        blocks = []
        for index in range(manifest.model.num_blocks):
            block = initial_block(manifest, index)
            block.load_state_dict(load_weights(training.weights_path(jobs, index, step)))
            blocks.append(block.to(torch.device(training.device)).eval())
        yield step, blocks
