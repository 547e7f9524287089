"""Starts workers, and notices when one dies, hangs or grows."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.fuzz.worker import STATE_SIZE_BYTES, Fault, State, StateFile

_LOOK_S = 0.2
_START_TIMEOUT_S = 120.0
_MAX_WALL_FACTOR = 6
"""A worker that uses no CPU is given up after so many time limits."""
_MAX_ENDS = 5
"""A decoder that kills its process is given up after so many."""
_COVERAGE = re.compile(r"\bcov: (\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """How one decoder is fed."""

    decoder: str
    num_inputs: int
    seed: int
    with_swarm: bool
    is_guided: bool
    input_timeout_s: float
    """CPU time for one input."""
    max_growth_bytes: int
    """Of the process, from its first input on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one decoder."""

    num_inputs: int
    num_accepted: int
    duration_s: float
    growth_bytes: int
    """Most memory over that at the first input."""
    coverage: int | None
    """Branches of ours that atheris saw; None without it."""
    faults: tuple[Fault, ...]


Watch = Callable[[int], bool]
"""Called with the inputs so far; False stops."""


def feed_all(options: WorkerOptions, folder: Path, watch: Watch) -> Outcome:
    """Feed a decoder until all inputs are used, in as many processes as that takes."""
    started_s = time.monotonic()
    num_inputs = num_accepted = growth = 0
    coverage: int | None = None
    faults: list[Fault] = []
    for attempt in range(_MAX_ENDS):
        worker = _Worker(options, folder, num_inputs=options.num_inputs - num_inputs, turn=attempt)
        end = worker.wait(_from(num_inputs, watch))
        num_inputs += end.state.num_inputs
        num_accepted += end.state.num_accepted
        growth = max(growth, worker.growth_bytes)
        coverage = max(filter(None, (coverage, worker.coverage())), default=None)
        faults += worker.faults()
        if not end.reason:
            break
        faults.append(
            Fault(error=end.reason, place="the process", input_hex=end.state.last_input.hex())
        )
        num_inputs += 1
        if num_inputs >= options.num_inputs or not watch(num_inputs):
            break
    return Outcome(
        num_inputs=num_inputs,
        num_accepted=num_accepted,
        duration_s=time.monotonic() - started_s,
        growth_bytes=growth,
        coverage=coverage,
        faults=tuple({(fault.error, fault.place): fault for fault in faults}.values()),
    )


def _from(before: int, watch: Watch) -> Watch:
    return lambda done: watch(before + done)


@dataclass(frozen=True, kw_only=True, slots=True)
class _End:
    reason: str
    """Empty if all is well."""
    state: State


class _Worker:
    def __init__(self, options: WorkerOptions, folder: Path, *, num_inputs: int, turn: int) -> None:
        self._options = options
        self._state_path = folder / f"state-{turn}"
        self._faults_path = folder / f"faults-{turn}"
        self._log_path = folder / f"log-{turn}"
        self._state_path.write_bytes(bytes(STATE_SIZE_BYTES))
        self._state = StateFile(self._state_path)
        self._first_rss: int | None = None
        self.growth_bytes = 0
        command = [
            *(sys.executable, "-m", "benchmarks.fuzz.worker"),
            *("--decoder", options.decoder, "--inputs", str(num_inputs)),
            *("--state", str(self._state_path), "--faults", str(self._faults_path)),
            *("--seed", str(options.seed + 1000 * turn)),
            *(["--with-swarm"] if options.with_swarm else []),
            *(["--guided"] if options.is_guided else []),
        ]
        with self._log_path.open("wb") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=log)
        self._process = psutil.Process(self._child.pid)

    def wait(self, watch: Watch) -> _End:
        """Until it ends, hangs, grows or is stopped."""
        seen, seen_at_s, seen_cpu_s = -1, time.monotonic(), 0.0
        limit_s = self._options.input_timeout_s
        while True:
            try:
                code = self._child.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                pass
            else:
                return self._ended(code)
            state = self._state.read()
            cpu_s, rss = self._look()
            if state.num_inputs > seen:
                seen, seen_at_s, seen_cpu_s = state.num_inputs, time.monotonic(), cpu_s
            self._grow(rss, is_started=bool(state.last_input))
            if not watch(state.num_inputs):
                return self._stop("")
            if self.growth_bytes > self._options.max_growth_bytes:
                return self._stop(f"grew by {self.growth_bytes} bytes")
            allowed_s = limit_s if state.last_input or seen > 0 else _START_TIMEOUT_S
            waited_s = time.monotonic() - seen_at_s
            if cpu_s - seen_cpu_s > allowed_s or waited_s > _MAX_WALL_FACTOR * allowed_s:
                return self._stop(f"took over {allowed_s:g} s for one input")

    def faults(self) -> list[Fault]:
        """What it kept."""
        if not self._faults_path.exists():
            return []
        lines = self._faults_path.read_text(encoding="utf-8").splitlines()
        return [Fault(**json.loads(line)) for line in lines]

    def coverage(self) -> int | None:
        """What atheris said last."""
        found = _COVERAGE.findall(self._log_path.read_text(encoding="utf-8", errors="replace"))
        return int(found[-1]) if found else None

    def _ended(self, code: int) -> _End:
        state = self._state.read()
        if code == 0:
            return _End(reason="", state=state)
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        log = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return _End(reason=f"ended with {name}: {' | '.join(log[-3:])[:300]}", state=state)

    def _look(self) -> tuple[float, int]:
        """CPU seconds and memory so far; zeros if it has just ended."""
        try:
            times = self._process.cpu_times()
            return times.user + times.system, self._process.memory_info().rss
        except psutil.Error:
            return 0.0, 0

    def _grow(self, rss: int, *, is_started: bool) -> None:
        if self._first_rss is None and is_started:
            self._first_rss = rss
        if self._first_rss is not None:
            self.growth_bytes = max(self.growth_bytes, rss - self._first_rss)

    def _stop(self, reason: str) -> _End:
        state = self._state.read()
        self._child.kill()
        self._child.wait()
        return _End(reason=reason, state=state)
