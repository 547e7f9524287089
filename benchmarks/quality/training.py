"""One job: one block from its initial weights to its last step.

A job that is stopped or killed goes on from its newest state, at most half a minute back; on the
same CPU it ends with the same weights, bit for bit.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

import bt_p2p
from benchmarks.quality.plan import Training, upstream_step
from benchmarks.quality.texts import Texts
from bt_p2p.clock import SystemClock
from bt_p2p.errors import CheckpointError, TrainingError
from bt_p2p.model.block import initial_block
from bt_p2p.model.checkpoint import load_checkpoint, previous_path, save_checkpoint
from bt_p2p.model.device import DeviceChoice
from bt_p2p.model.upstream import UpstreamStack
from bt_p2p.training.data import BatchSource
from bt_p2p.training.trainer import BlockTrainer

SAVE_EVERY_S = 30.0
"""Most that a kill can lose."""
MAX_BAD_STEPS_IN_A_ROW = 10
"""A block whose steps are not finite so often is lost."""
_FACT = "benchmark"
_CODE = ("model", "objective", "training")
"""Packages of the library that decide what is learned."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Moment(_Record):
    """A point on the curve of a job."""

    step: int
    wall_s: float
    """Seconds of training until then."""
    cpu_s: float
    """The same in seconds of this process on a CPU."""


class JobRecord(_Record):
    """What a finished job took."""

    block: int
    steps: int
    wall_s: float
    """Seconds in training steps; without start, compiling, saving and reading other blocks."""
    cpu_s: float
    """The same in seconds of the process on a CPU, which others on the machine do not lengthen."""
    startup_s: float
    """Seconds by which first steps took longer than others: compiling, mostly."""
    bad_steps: int
    """Steps skipped because something was not finite."""
    num_parameters: int
    weights_size_bytes: int
    optimizer_size_bytes: int
    """Measured: the tensors of the optimizer."""
    upstream_size_bytes: int
    """Measured: frozen copies of the blocks below, which `cascade` reads."""
    moments: tuple[Moment, ...]
    code: str
    """Hash of the library's code that the job ended with."""
    torch: str


class Stopwatch:
    """Seconds in training steps, over all sessions of a job.

    The first step of a session compiles and allocates. It counts as much as the mean of the others,
    and the rest of it apart.
    """

    def __init__(self, *, wall_s: float = 0.0, cpu_s: float = 0.0, startup_s: float = 0.0) -> None:
        """Go on from what earlier sessions took."""
        self._before = (wall_s, cpu_s, startup_s)
        self._first: tuple[float, float] | None = None
        self._others = (0.0, 0.0)
        self._num_others = 0

    def add(self, wall_s: float, cpu_s: float) -> None:
        """Count one step."""
        if self._first is None:
            self._first = (wall_s, cpu_s)
            return
        self._others = (self._others[0] + wall_s, self._others[1] + cpu_s)
        self._num_others += 1

    @property
    def wall_s(self) -> float:
        """Seconds of training."""
        return self._before[0] + self._session(0)

    @property
    def cpu_s(self) -> float:
        """Seconds of training on a CPU."""
        return self._before[1] + self._session(1)

    @property
    def startup_s(self) -> float:
        """Seconds that first steps took beyond their share."""
        first_s = 0.0 if self._first is None else self._first[0]
        return self._before[2] + max(0.0, first_s + self._others[0] - self._session(0))

    def _session(self, which: int) -> float:
        if self._first is None:
            return 0.0
        if not self._num_others:
            return self._first[which]
        return self._others[which] * (self._num_others + 1) / self._num_others


@dataclass(frozen=True, kw_only=True, slots=True)
class JobContext:
    """Where a job runs and whom it tells."""

    jobs: Path
    """Folder of all trainings."""
    texts: Texts
    on_progress: Callable[[int], None]
    """Told the steps or bytes done so far."""
    is_stopped: Callable[[], bool]
    """Asked after each step."""


def train_block(training: Training, block: int, context: JobContext) -> bool:
    """Train a block to its end; True if it came there, False if it was stopped before.

    Raises:
        CheckpointError: the disk is full, or weights of a block below are missing.
        TrainingError: the loss is not finite, step after step.
    """
    folder = training.block_folder(context.jobs, block)
    with _lock(folder / "lock"):
        return _Job(training, block, context).run()


def read_record(path: Path) -> JobRecord:
    """Read what a finished job took.

    Raises:
        CheckpointError: missing or malformed.
    """
    try:
        return JobRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as exc:
        raise CheckpointError(
            f"{path} cannot be read: {type(exc).__name__}; delete its folder to train again"
        ) from exc


def load_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a block that a job has kept.

    Raises:
        CheckpointError: missing or damaged.
    """
    found = load_checkpoint(path)
    if found is None:
        raise CheckpointError(
            f"there are no weights at {path}; delete {path.parent} to train again"
        )
    return found.tensors


def write_atomically(path: Path, text: str) -> None:
    """Write a small file whole or not at all.

    Raises:
        CheckpointError: the disk is full or cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as exc:
        raise CheckpointError(f"cannot write {path}: {exc}; free some disk") from exc


def code_hash() -> str:
    """Short hash of the library's code that decides what is learned."""
    root = Path(bt_p2p.__file__).parent
    digest = hashlib.sha256()
    for package in _CODE:
        for path in sorted((root / package).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep a second run of the benchmark away from the same job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise CheckpointError(
                f"another run of the benchmark trains {path.parent}; wait for it, or use other "
                f"--jobs"
            ) from exc
        yield


class _Job:
    def __init__(self, training: Training, block: int, context: JobContext) -> None:
        self._training = training
        self._block = block
        self._context = context
        self._state_path = training.block_folder(context.jobs, block) / "state.safetensors"
        self._clock = SystemClock()
        self._kept_steps = training.kept_steps(block)
        self._moments: list[Moment] = []
        self._watch = Stopwatch()
        manifest = training.manifest
        source = BatchSource(
            context.texts.train, manifest.model.context, manifest.optimizer.batch_size
        )
        device = DeviceChoice(
            device=torch.device(training.device),
            autocast_bf16=training.bf16,
            reason="as the config says",
        )
        self._upstream: UpstreamStack | None = None
        if training.is_cascade and block > 0:
            self._upstream = UpstreamStack(manifest, block, device.device)
        self._upstream_step = -1
        self._trainer = BlockTrainer(
            manifest,
            block,
            device,
            source,
            training.peer_id(block),
            upstream=self._upstream,
            compile_block=training.compile,
        )

    def run(self) -> bool:
        self._restore()
        trainer, training = self._trainer, self._training
        saved_at_s = self._clock.monotonic_s()
        bad_in_a_row = 0
        while trainer.total_steps < training.budget.steps:
            if trainer.total_steps % training.steps_per_round == 0:
                trainer.start_round(trainer.total_steps // training.steps_per_round)
            self._refresh_upstream()
            is_skipped = self._step()
            bad_in_a_row = bad_in_a_row + 1 if is_skipped else 0
            if bad_in_a_row >= MAX_BAD_STEPS_IN_A_ROW:
                raise TrainingError(
                    f"{training.title}, block {self._block}: {bad_in_a_row} steps in a row were "
                    f"not finite, up to step {trainer.total_steps}; lower the learning rate"
                )
            if trainer.total_steps in self._kept_steps:
                self._keep_weights()
            self._context.on_progress(trainer.total_steps)
            is_stopped = self._context.is_stopped()
            if is_stopped or self._clock.monotonic_s() - saved_at_s >= SAVE_EVERY_S:
                self._save()
                saved_at_s = self._clock.monotonic_s()
            if is_stopped:
                return False
        self._finish()
        return True

    def _step(self) -> bool:
        wall_s, cpu_s = self._clock.monotonic_s(), time.process_time()
        result = self._trainer.train_step()
        self._watch.add(self._clock.monotonic_s() - wall_s, time.process_time() - cpu_s)
        return result.is_skipped

    def _refresh_upstream(self) -> None:
        """Renew the copies of the blocks below; not counted, a volunteer does it between rounds."""
        step = upstream_step(self._trainer.total_steps, self._training.arm.refresh_steps)
        if self._upstream is None or step == self._upstream_step:
            return
        for block in range(self._block):
            if step == 0:
                parameters = initial_block(self._training.manifest, block).named_parameters()
                weights = {name: parameter.detach() for name, parameter in parameters}
            else:
                weights = load_weights(self._training.weights_path(self._context.jobs, block, step))
            self._upstream.adopt(block, weights)
        self._upstream_step = step

    def _keep_weights(self) -> None:
        step = self._trainer.total_steps
        path = self._training.weights_path(self._context.jobs, self._block, step)
        save_checkpoint(path, self._trainer.weights(), {"step": str(step)})
        previous_path(path).unlink(missing_ok=True)  # the same, from before a kill
        moment = Moment(step=step, wall_s=self._watch.wall_s, cpu_s=self._watch.cpu_s)
        self._moments.append(moment)

    def _save(self) -> None:
        tensors, facts = self._trainer.state()
        own = {
            "wall_s": self._watch.wall_s,
            "cpu_s": self._watch.cpu_s,
            "startup_s": self._watch.startup_s,
            "moments": [moment.model_dump() for moment in self._moments],
        }
        save_checkpoint(self._state_path, tensors, {**facts, _FACT: json.dumps(own)})

    def _restore(self) -> None:
        checkpoint = load_checkpoint(self._state_path)
        if checkpoint is None:
            return
        self._trainer.restore(checkpoint)
        own = json.loads(checkpoint.facts[_FACT])
        self._moments = [Moment.model_validate(moment) for moment in own.pop("moments")]
        self._watch = Stopwatch(**own)

    def _finish(self) -> None:
        weights = self._trainer.weights()
        record = JobRecord(
            block=self._block,
            steps=self._trainer.total_steps,
            wall_s=self._watch.wall_s,
            cpu_s=self._watch.cpu_s,
            startup_s=self._watch.startup_s,
            bad_steps=self._trainer.bad_steps,
            num_parameters=sum(tensor.numel() for tensor in weights.values()),
            weights_size_bytes=sum(tensor.nbytes for tensor in weights.values()),
            optimizer_size_bytes=self._trainer.optimizer_size_bytes(),
            upstream_size_bytes=self._upstream.size_bytes() if self._upstream else 0,
            moments=tuple(self._moments),
            code=code_hash(),
            torch=str(torch.__version__),
        )
        done = self._training.done_path(self._context.jobs, self._block)
        write_atomically(done, record.model_dump_json(indent=2) + "\n")
        for path in (self._state_path, previous_path(self._state_path)):
            path.unlink(missing_ok=True)  # the last weights are kept beside it
