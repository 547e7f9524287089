"""Real peers in real processes: three blocks without replicas beside two replicas of each."""

from __future__ import annotations

import secrets
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from types import FrameType

import psutil

from benchmarks.quality.texts import TEST, TRAIN_FILE, Texts, load_texts
from benchmarks.quality.training import write_atomically
from benchmarks.replicas.report import (
    SwarmReport,
    SwarmResult,
    VolunteerResult,
    make_set_up,
    render_swarm,
)
from bt_p2p.errors import SwarmError
from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.protocol.manifest import RunManifest
from node.client import Visit, visit
from node.commands.evaluate import score_model
from node.demo.processes import DemoProcess, DemoSwarm
from node.snapshot import NodeSnapshot
from node.tui.terminal import make_console

NUM_BLOCKS = 3
ROUND_S = 10
_EVAL_BYTES = 16_384
_JOIN_TIMEOUT_S = 180.0
_POLL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TextSwarm(DemoSwarm):
    """A demo swarm that may train on a file of text."""

    def __init__(
        self,
        title: str,
        folder: Path,
        manifest: RunManifest,
        text: Path | None,
        *,
        num_volunteers: int,
    ) -> None:
        """Start nothing yet."""
        super().__init__(folder)
        self.title = title
        self._num_volunteers = num_volunteers
        self.manifest = manifest
        self._text = text

    def start(self) -> None:
        """Start everybody; they train some time later."""
        self.folder.mkdir(parents=True)
        manifest_path = self.folder / "manifest.json"
        manifest_path.write_bytes(self.manifest.canonical_bytes())
        address = self.start_bootstrap(manifest_path)
        for index in range(self._num_volunteers):
            self.start_volunteer(f"volunteer-{index + 1}", self.manifest.run_id, address)

    def start_volunteer(self, name: str, run_id: str, address: str) -> DemoProcess:
        """As in the demo, with the text."""
        arguments = ["node", "join", "--run", run_id, "--initial-peers", address]
        arguments += ["--host", "127.0.0.1", "--threads", "1", "--plain"]
        arguments += [] if self._text is None else ["--data", str(self._text)]
        volunteer = DemoProcess(name, self.folder, arguments, self.token)
        self.volunteers.append(volunteer)
        return volunteer

    def snapshots(self) -> list[NodeSnapshot]:
        """Of all volunteers; raises SwarmError when one has ended."""
        found = []
        for volunteer in self.volunteers:
            if not volunteer.is_running:
                raise SwarmError(f"{volunteer.name} ended early: {volunteer.last_lines()}")
            snapshot = volunteer.snapshot
            if snapshot is not None:
                found.append(snapshot)
        return found

    @property
    def is_training(self) -> bool:
        """Whether all volunteers train."""
        states = [snapshot.state for snapshot in self.snapshots()]
        return len(states) == len(self.volunteers) and set(states) <= {"training", "averaging"}

    def visit(self) -> AbstractContextManager[Visit]:
        """Enter through the first volunteer, to ask the swarm."""
        addresses = parse_peer_addresses(self.snapshots()[0].addresses[:1])
        return visit(addresses, run=self.manifest.run_id)


def run_swarm(seconds: int, data: Path | None, *, out: Path, jobs: Path, command: str) -> int:
    """All three swarms and the report; returns the exit code. No process outlives it.

    Raises:
        SwarmError: a volunteer ended early or did not start.
    """
    console = make_console(stderr=True)
    texts = load_texts(data, cache_dir=jobs)
    if texts.note:
        console.print(texts.note)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    root = jobs / f"swarm-{secrets.token_hex(4)}"
    text = None if data is None else data / TRAIN_FILE

    swarms = [
        TextSwarm(
            f"{NUM_BLOCKS} blocks x {replicas}, seed {seed}",
            root / f"{replicas}-{seed}",
            make_manifest(seed, seconds, texts),
            text,
            num_volunteers=NUM_BLOCKS * replicas,
        )
        for replicas, seed in ((2, 1), (1, 1), (1, 2))  # scored in this order
    ]
    try:
        results = train_and_score(swarms, seconds, texts, console.print)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report = SwarmReport(set_up=make_set_up(texts, command), seconds=seconds, swarms=tuple(results))
    write_atomically(out / "swarm.json", report.model_dump_json(indent=2) + "\n")
    write_atomically(out / "swarm.md", render_swarm(report))
    console.print(render_swarm(report))
    return 0


def make_manifest(seed: int, seconds: int, texts: Texts) -> RunManifest:
    """A small run, with its whole decay in the given time."""
    return RunManifest.build(
        {
            "name": "replicas",
            "seed": seed,
            "model": {
                "num_blocks": NUM_BLOCKS,
                "layers_per_block": 2,
                "d_model": 64,
                "context": 64,
            },
            "objective": {"sweep_fraction": 0.0},
            "corpus": texts.corpus,
            "rounds": {"round_s": ROUND_S, "decay_rounds": max(1, seconds // ROUND_S)},
            "optimizer": {"batch_size": 16},
        }
    )


def train_and_score(
    swarms: list[TextSwarm],
    seconds: int,
    texts: Texts,
    say: Callable[[str], None],
) -> list[SwarmResult]:
    """Train some swarms beside each other, then score one after the other while they go on."""
    results = []
    try:
        for swarm in swarms:
            swarm.start()
        say(f"started {', '.join(swarm.title for swarm in swarms)}")
        _wait(lambda: all(swarm.is_training for swarm in swarms))
        started_s = time.monotonic()
        say(f"all volunteers train; scores in {seconds} s")
        with ExitStack() as stack:
            visits = [stack.enter_context(swarm.visit()) for swarm in swarms]
            while time.monotonic() < started_s + seconds:
                time.sleep(_POLL_S)
                for swarm in swarms:
                    swarm.snapshots()
            for swarm, visited in zip(swarms, visits, strict=True):
                results.append(_measure(swarm, visited, texts, time.monotonic() - started_s))
                say(f"{swarm.title}: {results[-1].final_nats:.4f} nats/byte")
    finally:
        _end(swarms)
    return results


def _measure(swarm: TextSwarm, visited: Visit, texts: Texts, trained_s: float) -> SwarmResult:
    volunteers = tuple(
        VolunteerResult.model_validate({**snapshot.model_dump(), "cpu_s": _cpu_s(snapshot.pid)})
        for snapshot in swarm.snapshots()
    )
    score = score_model(visited.asked(), texts.scored[TEST][:_EVAL_BYTES].tobytes())
    return SwarmResult(
        title=swarm.title,
        run_id=swarm.manifest.run_id,
        final_nats=score.final_nats,
        per_block_nats=score.per_block_nats,
        bytes_scored=score.num_bytes,
        trained_s=trained_s,
        volunteers=volunteers,
    )


def _cpu_s(pid: int) -> float:
    """CPU seconds of a program and its children."""
    total = 0.0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _wait(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _JOIN_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise SwarmError(f"the volunteers did not all train within {_JOIN_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _end(swarms: list[TextSwarm]) -> None:
    """End all processes, undisturbed by further signals."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    for swarm in swarms:
        swarm.stop(timeout_s=20)
        swarm.kill_leftovers()
    for number, handler in before.items():
        signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
