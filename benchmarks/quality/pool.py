"""A process for each task, so many at a time.

A process of its own gives each task one thread, its own CPU seconds and its own compiled code, and
a task that dies takes nothing with it. Nothing outlives the program: it asks its children to stop,
waits shortly and then ends them, and a child whose parent has died ends itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.quality.progress import Reporter
from benchmarks.quality.tasks import Task, perform, urgency
from benchmarks.quality.texts import Texts, load_texts
from benchmarks.quality.training import JobContext
from bt_p2p.errors import BtError, TrainingError

_POLL_S = 0.25
_TELL_EVERY_S = 0.5
_GRACE_S = 5.0


class TaskFailedError(BtError):
    """A task broke off, or its process died."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workplace:
    """Where tasks run."""

    jobs: Path
    """Folder of all trainings."""
    data: Path | None
    """Folder of the texts; None for the embedded corpus."""
    corpus_sha256: str
    """Of the training text, which must not change meanwhile."""
    debug: bool
    """Show the traceback of a task that fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """What a child says: units done so far, or how it ended."""

    units: int = 0
    has_ended: bool = False
    error: str = ""


@dataclass(kw_only=True, slots=True)
class _Child:
    task: Task
    process: SpawnProcess
    has_to_save: bool = False
    """It has trained steps; not so while it compiles, nor ever when it takes scores."""


class Pool:
    """Runs tasks in processes; use as long as `run` takes."""

    def __init__(
        self, place: Workplace, *, workers: int, reporter: Reporter, is_stopped: Callable[[], bool]
    ) -> None:
        """Start nothing yet; `workers` is at least one."""
        self._place = place
        self._workers = workers
        self._reporter = reporter
        self._is_stopped = is_stopped
        self._context = multiprocessing.get_context("spawn")
        self._stop: Event = self._context.Event()
        self._children: dict[Connection, _Child] = {}

    def run(self, tasks: Sequence[Task]) -> bool:
        """Do all tasks; True if all are finished, False if it was stopped before.

        Raises:
            TaskFailedError: a task broke off; the others are stopped.
        """
        order = urgency(tasks)
        waiting = sorted(tasks, key=lambda task: -order[task.key])
        # one thread each, also while compiling
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        try:
            while (waiting or self._children) and not self._is_stopped():
                unfinished = {task.key for task in waiting}
                unfinished |= {child.task.key for child in self._children.values()}
                ready = [task for task in waiting if not task.needs & unfinished]
                for task in ready[: self._workers - len(self._children)]:
                    waiting.remove(task)
                    self._start(task)
                for pipe in wait(list(self._children), timeout=_POLL_S):
                    assert isinstance(pipe, Connection)
                    self._listen(pipe)
                self._reporter.tick()
            return not waiting and not self._children
        finally:
            self._end_all()

    def _start(self, task: Task) -> None:
        receiving, sending = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work, args=(task, self._place, sending, self._stop), name=task.title
        )
        process.start()
        sending.close()  # so that the end of the child ends the pipe
        self._children[receiving] = _Child(task=task, process=process)
        self._reporter.start(task)

    def _listen(self, pipe: Connection) -> None:
        child = self._children[pipe]
        try:
            told = pipe.recv()
        except EOFError:
            self._forget(pipe)
            raise TaskFailedError(
                f"{child.task.title}: its process ended with code {child.process.exitcode}, maybe "
                f"for want of memory; run the same command again to go on, with fewer --workers"
            ) from None
        assert isinstance(told, _Told)
        if told.error:
            raise TaskFailedError(told.error)
        self._reporter.advance(child.task, told.units)
        child.has_to_save = child.task.block is not None
        if told.has_ended:
            self._forget(pipe)
            self._reporter.finish(child.task)

    def _forget(self, pipe: Connection) -> None:
        child = self._children.pop(pipe)
        child.process.join(_GRACE_S)
        pipe.close()

    def _end_all(self) -> None:
        self._stop.set()
        deadline_s = time.monotonic() + _GRACE_S
        for child in self._children.values():
            if child.has_to_save:
                child.process.join(max(0.0, deadline_s - time.monotonic()))
            if child.process.is_alive():
                child.process.terminate()
                child.process.join(_GRACE_S)
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
        for pipe in self._children:
            pipe.close()
        self._children.clear()


def run_here(
    tasks: Sequence[Task],
    texts: Texts,
    *,
    jobs: Path,
    reporter: Reporter,
    is_stopped: Callable[[], bool],
) -> bool:
    """Do all tasks in this process, one after another; for tests and debuggers.

    Returns:
        True if all are finished, False if it was stopped before.

    Raises:
        BtError: what failed.
    """
    for task in tasks:
        reporter.start(task)

        def advance(units: int, task: Task = task) -> None:
            reporter.advance(task, units)

        context = JobContext(jobs=jobs, texts=texts, on_progress=advance, is_stopped=is_stopped)
        if is_stopped() or not perform(task, context):
            return False
        reporter.finish(task)
    return True


def _work(task: Task, place: Workplace, pipe: Connection, stop: Event) -> None:
    """What a child does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # cleans up
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch  # noqa: PLC0415 - after the environment is set

    if task.training.device == "cpu":
        torch.set_num_threads(1)
    try:
        texts = _load_same_texts(place)
        told_at_s = time.monotonic()

        def tell(units: int) -> None:
            nonlocal told_at_s
            if time.monotonic() - told_at_s >= _TELL_EVERY_S:
                told_at_s = time.monotonic()
                pipe.send(_Told(units=units))

        context = JobContext(jobs=place.jobs, texts=texts, on_progress=tell, is_stopped=stop.is_set)
        if perform(task, context):
            pipe.send(_Told(units=task.num_units, has_ended=True))
    except Exception as exc:  # noqa: BLE001 - the border of the process
        if place.debug:
            traceback.print_exc()
        text = str(exc) if isinstance(exc, BtError) else f"{type(exc).__name__}: {exc}"
        pipe.send(_Told(error=f"{task.title}: {text}"))


def _load_same_texts(place: Workplace) -> Texts:
    texts = load_texts(place.data, cache_dir=place.jobs)
    if texts.corpus.sha256 != place.corpus_sha256:
        raise TrainingError("the training text has changed meanwhile; start again")
    return texts


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
