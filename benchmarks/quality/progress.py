"""What the user sees while tasks run: bars on a terminal, else a line now and then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from benchmarks.quality.tasks import Task
from bt_p2p.clock import Clock, SystemClock
from node.tui.format import format_duration
from node.tui.terminal import can_redraw

_LINE_EVERY_S = 30.0
_BAR_CHARS = 16


class Reporter(Protocol):
    """Told what happens; called from one thread."""

    def start(self, task: Task) -> None:
        """A task runs."""

    def advance(self, task: Task, num_units: int) -> None:
        """So many of its units are done."""

    def finish(self, task: Task) -> None:
        """It is finished."""

    def tick(self) -> None:
        """Some time has passed."""


class Progression:
    """How far all tasks are, and how long the rest will take."""

    def __init__(self, tasks: Sequence[Task], clock: Clock) -> None:
        """Begin to count now; what earlier sessions did is told by the first `advance`."""
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._flops = sum(task.flops for task in tasks)
        self._units: dict[str, int] = {}
        self._tasks = {task.key: task for task in tasks}
        self._before: dict[str, int] = {}
        self.num_finished = 0

    def advance(self, task: Task, num_units: int) -> None:
        """So many units of a task are done, those of earlier sessions included."""
        self._before.setdefault(task.key, max(0, num_units - 1))
        self._units[task.key] = num_units

    def finish(self, task: Task) -> None:
        """A task is finished."""
        self.advance(task, task.num_units)
        self.num_finished += 1

    @property
    def num_steps(self) -> int:
        """Training steps done."""
        return sum(
            self._units.get(key, 0) for key, task in self._tasks.items() if task.block is not None
        )

    @property
    def num_all_steps(self) -> int:
        """Training steps there are."""
        return sum(task.num_units for task in self._tasks.values() if task.block is not None)

    @property
    def share(self) -> float:
        """Of the work, 0 to 1."""
        return self._done_flops(self._units) / self._flops if self._flops else 1.0

    @property
    def left_s(self) -> float:
        """Seconds that the rest will take, as fast as it went so far; infinite at first."""
        done_here = self._done_flops(self._units) - self._done_flops(self._before)
        if done_here <= 0:
            return float("inf")
        passed_s = self._clock.monotonic_s() - self._started_s
        return passed_s * (self._flops - self._done_flops(self._units)) / done_here

    @property
    def words(self) -> str:
        """One line for people."""
        return (
            f"{self.num_finished}/{len(self._tasks)} tasks, "
            f"{self.num_steps:,}/{self.num_all_steps:,} steps, {self.share:.0%}, "
            f"about {format_duration(self.left_s)} left"
        )

    def _done_flops(self, units: dict[str, int]) -> float:
        return sum(count * self._tasks[key].unit_flops for key, count in units.items())


class LineReporter:
    """A line for each task that starts or ends, and one every half minute."""

    def __init__(self, tasks: Sequence[Task], console: Console, clock: Clock | None = None) -> None:
        """Say how much there is to do."""
        self._clock = clock or SystemClock()
        self._console = console
        self._progress = Progression(tasks, self._clock)
        self._said_s = self._clock.monotonic_s()
        self._console.print(f"{len(tasks)} tasks to do")

    def __enter__(self) -> LineReporter:
        """Nothing to prepare."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def start(self, task: Task) -> None:
        """See `Reporter`."""
        self._say(f"started {task.title}")

    def advance(self, task: Task, num_units: int) -> None:
        """See `Reporter`."""
        self._progress.advance(task, num_units)

    def finish(self, task: Task) -> None:
        """See `Reporter`."""
        self._progress.finish(task)
        self._say(f"finished {task.title}; {self._progress.words}")

    def tick(self) -> None:
        """See `Reporter`."""
        if self._clock.monotonic_s() - self._said_s >= _LINE_EVERY_S:
            self._say(self._progress.words)

    def _say(self, text: str) -> None:
        self._said_s = self._clock.monotonic_s()
        self._console.print(text)


class BarReporter:
    """One bar for everything and one for each task that runs."""

    def __init__(self, tasks: Sequence[Task], console: Console, clock: Clock | None = None) -> None:
        """Draw nothing yet."""
        self._progress = Progression(tasks, clock or SystemClock())
        columns = (
            TextColumn("{task.description}"),
            BarColumn(_BAR_CHARS),
            TextColumn("{task.fields[words]}"),
        )
        self._running = Progress(*columns)
        self._all = Progress(*columns)
        self._bar = self._all.add_task("", total=1.0, words=self._progress.words)
        self._bars: dict[str, TaskID] = {}
        self._live = Live(Group(self._running, self._all), console=console)

    def __enter__(self) -> BarReporter:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Draw once more and give the terminal back."""
        self.tick()
        self._live.stop()

    def start(self, task: Task) -> None:
        """See `Reporter`."""
        self._bars[task.key] = self._running.add_task(task.title, total=task.num_units, words="")

    def advance(self, task: Task, num_units: int) -> None:
        """See `Reporter`."""
        self._progress.advance(task, num_units)
        unit = "bytes" if task.block is None else "steps"
        words = f"{num_units:,}/{task.num_units:,} {unit}"
        self._running.update(self._bars[task.key], completed=num_units, words=words)

    def finish(self, task: Task) -> None:
        """See `Reporter`."""
        self._progress.finish(task)
        self._running.remove_task(self._bars.pop(task.key))
        self.tick()

    def tick(self) -> None:
        """See `Reporter`."""
        share, words = self._progress.share, self._progress.words
        self._all.update(self._bar, completed=share, words=words)


def make_reporter(tasks: Sequence[Task], console: Console) -> LineReporter | BarReporter:
    """Bars where they can be redrawn, else lines."""
    return (BarReporter if can_redraw(console) else LineReporter)(tasks, console)
