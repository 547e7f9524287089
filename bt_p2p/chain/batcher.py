"""Requests that wait at the same moment are computed together, fairly between those who ask.

One thread computes. Whenever it is free it takes a batch of what is waiting then. If many have asked
lately it waits a few milliseconds for more of them: a small batch costs almost as much as a large one. A
lone client waits for nothing. Askers take turns: whoever has many requests waiting delays another one by
no more than a batch.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bt_p2p.errors import BusyError
from bt_p2p.protocol.limits import MAX_BATCH_TOKENS, MAX_WAITING_REQUESTS

MAX_GATHER_S = 0.004
"""A batch waits for others so long at most."""
RECENT_S = 0.25
"""Those who were answered in this time are expected to ask again."""

Job = TypeVar("Job")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

Compute = Callable[[Sequence[Job]], Sequence[Answer | Exception]]
"""Answers to a batch of jobs, in order, or for some of them the error that is theirs. If it raises, each
job is tried alone; it may be called again with the same job."""


@dataclass(kw_only=True, slots=True, eq=False)
class Waiting(Generic[Job, Answer]):
    """A job that is not computed yet."""

    job: Job
    asker: str
    """Peer id of whoever asked."""
    num_tokens: int
    """What it costs."""
    key: bytes | None = None
    """Jobs of one asker with the same key are never in one batch."""
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Batcher(Generic[Job, Answer]):
    """Collects jobs from an event loop, and computes them on a thread of its own."""

    def __init__(self, compute: Compute[Job, Answer]) -> None:
        """No thread is started before the first job."""
        self._compute = compute
        self._lock = threading.Condition()
        self._queues: OrderedDict[str, deque[Waiting[Job, Answer]]] = OrderedDict()
        """By asker; whose turn is next comes first."""
        self._answered: deque[tuple[float, object]] = deque()
        """When whom was answered lately; used by the worker alone."""
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batcher")
        self._is_work_due = False
        """Whether the worker will look for jobs that enter now."""

    async def ask(
        self, job: Job, *, asker: str, num_tokens: int, key: bytes | None = None
    ) -> Answer:
        """The answer to a job; one that is given up while it waits is never computed.

        Raises:
            BusyError: this asker has `MAX_WAITING_REQUESTS` waiting.
        """
        waiting = Waiting[Job, Answer](job=job, asker=asker, num_tokens=num_tokens, key=key)
        self._enter(waiting)
        try:
            return await waiting.answer
        finally:
            self._remove([waiting])

    def between(self, work: Callable[[], Result]) -> Future[Result]:
        """Do something between two batches, on the thread that computes them."""
        return self._worker.submit(work)

    def _enter(self, waiting: Waiting[Job, Answer]) -> None:
        with self._lock:
            queue = self._queues.setdefault(waiting.asker, deque())
            if len(queue) >= MAX_WAITING_REQUESTS:
                raise BusyError(
                    f"busy: {len(queue)} of your requests are waiting; ask again later or "
                    f"ask another holder"
                )
            queue.append(waiting)
            self._lock.notify()
            self._start_work()

    def _start_work(self) -> None:
        """Have the worker look for jobs; hold the lock."""
        if not self._is_work_due:
            self._is_work_due = True
            self._worker.submit(self._work)

    def _remove(self, gone: Iterable[Waiting[Job, Answer]]) -> None:
        with self._lock:
            for waiting in gone:
                queue = self._queues.get(waiting.asker, deque())
                if waiting in queue:
                    queue.remove(waiting)
                if not queue:
                    self._queues.pop(waiting.asker, None)

    def _work(self) -> None:
        """One batch, if anything waits, and the next one if that leaves any."""
        self._gather()
        with self._lock:
            self._is_work_due = False
            batch = pick_batch(self._queues, max_tokens=MAX_BATCH_TOKENS)
            for waiting in batch:
                self._queues.move_to_end(waiting.asker)
        self._remove(batch)
        wanted = [each for each in batch if not each.answer.cancelled()]
        outcomes = self._outcomes([each.job for each in wanted])
        now_s = time.monotonic()
        self._answered.extend((now_s, each.key or each.asker) for each in wanted)
        _deliver(wanted, outcomes)
        with self._lock:
            if self._queues:
                self._start_work()

    def _gather(self) -> None:
        """Wait for a while until half of those who asked lately are asking again."""
        now_s = time.monotonic()
        while self._answered and self._answered[0][0] < now_s - RECENT_S:
            self._answered.popleft()
        num_recent = len({who for _, who in self._answered})

        def is_enough() -> bool:
            num_waiting = sum(len(queue) for queue in self._queues.values())
            return not num_waiting or num_waiting >= num_recent / 2

        with self._lock:
            self._lock.wait_for(is_enough, timeout=MAX_GATHER_S)

    def _outcomes(self, jobs: Sequence[Job]) -> Sequence[Answer | Exception]:
        if not jobs:
            return []
        try:
            return self._compute(jobs)
        except Exception as exc:  # noqa: BLE001 - whoever asked gets it
            if len(jobs) == 1:
                return [exc]
            return [outcome for job in jobs for outcome in self._outcomes([job])]


def _deliver(asked: Sequence[Waiting[Job, Answer]], outcomes: Sequence[Answer | Exception]) -> None:
    """Answer all who wait on one event loop in one turn of it: to wake it costs more than to answer."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Waiting[Job, Answer], Answer | Exception]]]
    by_loop = {}
    for waiting, outcome in zip(asked, outcomes, strict=True):
        by_loop.setdefault(waiting.answer.get_loop(), []).append((waiting, outcome))
    for loop, answered in by_loop.items():
        if not loop.is_closed():  # then nobody waits any more
            loop.call_soon_threadsafe(_set_answers, answered)


def _set_answers(answered: Sequence[tuple[Waiting[Job, Answer], Answer | Exception]]) -> None:
    for waiting, outcome in answered:
        if waiting.answer.done():
            continue  # given up in the meantime
        if isinstance(outcome, Exception):
            waiting.answer.set_exception(outcome)
        else:
            waiting.answer.set_result(outcome)


def pick_batch(
    queues: Mapping[str, Iterable[Waiting[Job, Answer]]], *, max_tokens: int
) -> list[Waiting[Job, Answer]]:
    """What is computed next: one job of each asker in turn, and again, while they fit.

    Args:
        queues: jobs by asker, each in the order in which they came; whose turn it is comes first.
        max_tokens: of the whole batch; a single job may have more.
    """
    batch: list[Waiting[Job, Answer]] = []
    keys: set[tuple[str, bytes]] = set()
    num_tokens = 0
    turns = deque(iter(queue) for queue in queues.values())
    while turns:
        queue = turns.popleft()
        waiting = next(queue, None)
        if waiting is None:
            continue
        if waiting.key is not None:
            if (waiting.asker, waiting.key) in keys:
                continue  # and what this asker wants after it keeps its place, too
            keys.add((waiting.asker, waiting.key))
        num_tokens += waiting.num_tokens
        if batch and num_tokens > max_tokens:
            break
        batch.append(waiting)
        turns.append(queue)
    return batch
