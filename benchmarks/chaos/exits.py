"""Every signal at every moment of a node's life: does it end in time, and is anything left?"""

from __future__ import annotations

import secrets
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, get_args

import psutil
from pydantic import BaseModel, ConfigDict

from benchmarks.chaos.saver_node import AVERAGING
from benchmarks.ports import free_port, is_free
from benchmarks.quality.training import write_atomically
from benchmarks.replicas.report import SetUp, set_up_words, table
from bt_p2p.errors import SwarmError
from bt_p2p.protocol.manifest import RunManifest
from node.demo.processes import DemoProcess, DemoSwarm, wait_for
from node.state_dir import StateDir
from node.tui.terminal import make_console

Moment = Literal["bootstrap", "idle", "step", "average", "save"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)
TITLES: dict[Moment, str] = {
    "bootstrap": "while it starts and joins",
    "idle": "bt-bootstrap, waiting",
    "step": "in a training step",
    "average": "in an average",
    "save": "in a save",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
ROUND_S = 4.0
END_WITHIN_S = 10.0
"""A node ends within this time after a signal."""
GONE_WITHIN_S = 10.0
"""Its children are gone within this time after it."""
_START_TIMEOUT_S = 120.0
_POLL_S = 0.1
_FINE_POLL_S = 0.0005
_NUM_LANES = 2
_START_STEPS = ("", "starting", "new identity", "manifest fetched", "others join with")
"""What a node prints on its way; the first is the moment at which its program is started."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only looked at


class ExitResult(BaseModel):
    """One node that was ended."""

    model_config = ConfigDict(frozen=True)

    moment: Moment
    signal: str
    state: str
    """What it said of itself just before, or how far its start had come."""
    is_hit: bool
    """The moment was still there when the signal was sent, as far as one can see from outside."""
    seconds: float | None
    """From the signal to its end; None if it had to be killed."""
    exit_code: int | None
    processes: tuple[str, ...]
    """Left behind."""
    ports: int
    files: tuple[str, ...]
    """Left in the temporary folder, or in shared memory."""
    traceback: bool
    """Its output shows one."""

    def problems(self) -> list[str]:
        """Everything that is not as it should be."""
        where = f"{self.signal} {TITLES[self.moment]}"
        found = []
        if self.seconds is None:
            found.append(f"{where}: did not end in time (state {self.state})")
        elif self.exit_code not in _right_codes(self.moment, self.signal):
            found.append(f"{where}: exit code {self.exit_code}")
        if self.processes or self.ports or self.files:
            found.append(
                f"{where}: left {self.ports} ports, {', '.join((*self.processes, *self.files))}"
            )
        if self.traceback:
            found.append(f"{where}: a traceback")
        return found


class ExitReport(BaseModel):
    """The whole of exits.json."""

    set_up: SetUp
    results: tuple[ExitResult, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where nodes are ended: a swarm with a partner that stays."""

    manifest: RunManifest
    manifest_path: Path
    address: str
    folder: Path


def make_manifest() -> RunManifest:
    """One block, large enough that averages and saves take a while."""
    return RunManifest.build(
        {
            "name": "exits",
            "model": {
                "num_blocks": 1,
                "layers_per_block": 2,
                "d_model": 256,
                "context": 64,
            },
            "objective": {"sweep_fraction": 0.0},
            "rounds": {"round_s": ROUND_S},
            "optimizer": {"batch_size": 4},
        }
    )


def run_exits(num_runs: int, *, out: Path, jobs: Path, set_up: SetUp) -> int:
    """End nodes, cell after cell, and write the report; 0 only if nothing is left behind."""
    console = make_console(stderr=True)
    cells = [(moment, number) for moment in MOMENTS for number in SIGNALS]
    root = jobs / f"exits-{secrets.token_hex(3)}"
    root.mkdir(parents=True)
    swarm = DemoSwarm(root)
    results: list[ExitResult] = []

    def end_one(index: int) -> ExitResult:
        moment, number = cells[index % len(cells)]
        result = end_node(place, moment, number, seed=index)
        words = "; ".join(result.problems()) or "nothing left"
        seconds = "-" if result.seconds is None else f"{result.seconds:.1f} s"
        console.print(f"{index + 1:3d} {number.name} {TITLES[moment]}: {seconds}, {words}")
        return result

    pool = ThreadPoolExecutor(_NUM_LANES)
    try:
        place = start_place(swarm)
        results = list(pool.map(end_one, range(num_runs)))
    finally:
        pool.shutdown(cancel_futures=True)
        swarm.stop(timeout_s=20)
        swarm.kill_leftovers()
    report = ExitReport(set_up=set_up, results=tuple(results))
    text = render(report)
    write_atomically(out / "exits.json", report.model_dump_json(indent=1) + "\n")
    write_atomically(out / "exits.md", text)
    console.print(text, markup=False)
    if any(result.problems() for result in results):
        console.print(f"output of the programs is kept in {root}")
        return 1
    shutil.rmtree(root, ignore_errors=True)
    return 0


def start_place(swarm: DemoSwarm, *, has_partner: bool = True) -> Place:
    """Start a bootstrap peer, and a partner unless the nodes to be ended are each other's."""
    manifest = make_manifest()
    manifest_path = swarm.folder / "manifest.json"
    manifest_path.write_bytes(manifest.canonical_bytes())
    address = swarm.start_bootstrap(manifest_path)
    place = Place(
        manifest=manifest, manifest_path=manifest_path, address=address, folder=swarm.folder
    )
    if not has_partner:
        return place
    partner = swarm.start_volunteer("partner", manifest.run_id, address)

    def trains() -> str:
        snapshot = partner.snapshot
        return snapshot.state if snapshot and snapshot.state == "training" else ""

    wait_for(trains, partner, what="the partner", timeout_s=_START_TIMEOUT_S)
    return place


def end_node(
    place: Place,
    moment: Moment,
    number: signal.Signals,
    *,
    seed: int,
    within_s: float = END_WITHIN_S,
) -> ExitResult:
    """Start a node, wait for the moment, send the signal, and look at what is left."""
    temporary = Path(tempfile.mkdtemp(prefix="btx-"))
    swarm = DemoSwarm(place.folder, environment={"TMPDIR": str(temporary)})
    port = free_port()
    node = _start(swarm, place, moment, port, name=f"node-{seed}")
    try:
        state, is_there = _wait_for_moment(place, node, moment, temporary, seed)
        family = [node.pid, *(child.pid for child in psutil.Process(node.pid).children(True))]
        is_hit = is_there()
        sent_s = time.monotonic()
        node.send(number)
        is_ended = node.wait_ended(timeout_s=within_s)
        seconds = time.monotonic() - sent_s if is_ended else None
        exit_code = node.exit_code
        if not is_ended:
            psutil.Process(node.pid).kill()
        _wait(lambda: not swarm.leftovers(), timeout_s=GONE_WITHIN_S)
        left = tuple(_name(process) for process in swarm.leftovers())
        _wait(lambda: is_free(port), timeout_s=1)
        return ExitResult(
            moment=moment,
            signal=number.name,
            state=state,
            is_hit=is_hit,
            seconds=seconds,
            exit_code=exit_code,
            processes=left,
            ports=0 if is_free(port) else 1,
            files=(*_left_in(temporary), *_shared_memory_of(family)),
            traceback="Traceback" in node.log_path.read_text(encoding="utf-8", errors="replace"),
        )
    finally:
        node.send(signal.SIGKILL)
        swarm.kill_leftovers()
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(node.state_path, ignore_errors=True)


def _start(swarm: DemoSwarm, place: Place, moment: Moment, port: int, *, name: str) -> DemoProcess:
    if moment == "idle":
        arguments = ["bootstrap", "--manifest", str(place.manifest_path)]
    else:
        program = "node" if moment == "bootstrap" else "benchmarks.chaos.saver_node"
        arguments = [program, "join", "--run", place.manifest.run_id]
        arguments += ["--threads", "1", "--plain", "--block", "0"]
    arguments += ["--initial-peers", place.address, "--host", "127.0.0.1", "--port", str(port)]
    return DemoProcess(name, swarm.folder, arguments, swarm.token, environment=swarm.environment)


def _wait_for_moment(
    place: Place, node: DemoProcess, moment: Moment, temporary: Path, seed: int
) -> tuple[str, Callable[[], bool]]:
    """Return at a moment: what it is exactly, and how to see whether it is still there.

    Raises:
        SwarmError: the moment does not come.
    """
    random = Random(seed)  # noqa: S311 - repeatable on purpose
    if moment == "bootstrap":
        return _wait_in_start(node, random, seed)
    if moment == "idle":
        _need(lambda: "/p2p/" in node.last_lines(20), node, what="the bootstrap peer's address")
        return "waiting", lambda: True

    def state() -> str:
        snapshot = node.snapshot
        return snapshot.state if snapshot is not None else ""

    _need(lambda: state() == "training", node, what="training")
    if moment == "step":
        time.sleep(random.uniform(0.0, ROUND_S / 4))
        return "training", lambda: state() == "training"
    if moment == "average":
        mark, longest_s = temporary / AVERAGING, 0.1
    else:
        path = StateDir(node.state_path).checkpoint_path(place.manifest.run_id, 0)
        mark, longest_s = path.with_name(f"{path.name}.tmp"), 0.01
    _need(mark.exists, node, what=TITLES[moment], poll_s=_FINE_POLL_S)
    time.sleep(random.uniform(0.0, longest_s))
    return moment, mark.exists


def _wait_in_start(node: DemoProcess, random: Random, seed: int) -> tuple[str, Callable[[], bool]]:
    """Wait for one of the steps of a start, each in its turn, and a little longer."""
    step = _START_STEPS[(seed + seed // (len(MOMENTS) * len(SIGNALS))) % len(_START_STEPS)]
    _need(lambda: step in node.last_lines(20), node, what=step, poll_s=_POLL_S / 10)
    time.sleep(random.uniform(0.0, 0.5))
    return step or "loading", lambda: "training:" not in node.last_lines(20)


def _need(
    condition: Callable[[], bool], node: DemoProcess, *, what: str, poll_s: float = _POLL_S
) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not condition():
        if not node.is_running:
            raise SwarmError(f"{node.name} ended before {what}: {node.last_lines()}")
        if time.monotonic() > deadline_s:
            raise SwarmError(f"{node.name} did not come to {what}: {node.last_lines()}")
        time.sleep(poll_s)


def _wait(condition: Callable[[], bool], *, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def _right_codes(moment: Moment, name: str) -> set[int]:
    """128 and the signal's number; early in a start Python's own handlers end it."""
    number = int(signal.Signals[name])
    if name == "SIGKILL":
        return {-number}
    return {128 + number, -number} if moment == "bootstrap" else {128 + number}


def _left_in(temporary: Path) -> list[str]:
    """Files and folders; torch keeps a folder of its own there for good."""
    names = sorted(each.name for each in temporary.iterdir())
    return [name for name in names if name != AVERAGING and not name.startswith("torchinductor_")]


def _shared_memory_of(pids: list[int]) -> list[str]:
    """Entries of shared memory whose names bear one of these processes."""
    if not _SHARED_MEMORY.is_dir():
        return []
    marks = {f"_{pid}_" for pid in pids}
    return [
        each.name for each in _SHARED_MEMORY.iterdir() if any(mark in each.name for mark in marks)
    ]


def _name(process: psutil.Process) -> str:
    try:
        return f"{process.name()} {process.pid}"
    except psutil.Error:
        return str(process.pid)


def render(report: ExitReport) -> str:
    """The whole of exits.md."""
    results = report.results
    rows = []
    for moment in MOMENTS:
        for name in (number.name for number in SIGNALS):
            cell = [each for each in results if (each.moment, each.signal) == (moment, name)]
            if not cell:
                continue
            seconds = [each.seconds for each in cell if each.seconds is not None]
            rows.append(
                [
                    TITLES[moment],
                    name,
                    f"{sum(each.is_hit for each in cell)} of {len(cell)}",
                    f"{statistics.median(seconds):.1f} s" if seconds else "-",
                    f"{max(seconds):.1f} s" if seconds else "-",
                    ", ".join(sorted({str(each.exit_code) for each in cell})),
                    str(sum(len(each.processes) for each in cell)),
                    str(sum(each.ports for each in cell)),
                    str(sum(len(each.files) for each in cell)),
                ]
            )
    problems = [problem for result in results for problem in result.problems()]
    verdict = "\n".join(f"- FAILED: {problem}" for problem in problems) or (
        f"Nothing was left behind in {len(results)} runs."
    )
    header = ["Moment", "Signal", "hit", "ends after", "at most", "exit codes"]
    header += ["processes", "ports", "files"]
    parts = [
        "# Ends of nodes",
        f"Real nodes beside a partner that stays, each ended by one signal to its main process. "
        f"Then, within {GONE_WITHIN_S:g} s: processes of it that are left, its port, and files in "
        f"the temporary folder that it alone used or in shared memory. A negative exit code is a "
        f"signal that ended the process itself, as it has to be with SIGKILL, and as it is early in a "
        f"start. Hit: the moment was still there when the signal was sent. Starts are ended in these "
        f"steps: {', '.join(sorted({each.state for each in results if each.moment == 'bootstrap'}))}.",
        verdict,
        table(header, rows),
        set_up_words(report.set_up, "exits.json"),
    ]
    return "\n\n".join(parts) + "\n"
