"""The story of the demo: a swarm without a coordinator loses its bootstrap peer and a volunteer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bt_p2p.corpus.corpus import load_corpus
from bt_p2p.errors import SwarmError
from bt_p2p.evaluation import score_blocks
from bt_p2p.model.block import initial_block
from bt_p2p.protocol.limits import LEASE_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.training.baseline import order1_cross_entropy
from node.client import Visit
from node.commands.evaluate import score_model
from node.demo.processes import DemoProcess, DemoSwarm, wait_for
from node.demo.report import DemoReport
from node.state_dir import StateDir

PROMPT = "The return value of this function is "
_JOIN_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoPlan:
    """Size and length of the demo."""

    manifest: RunManifest
    num_volunteers: int
    train_s: float
    """Seconds of training between the first round and the final evaluation."""
    eval_bytes: int
    new_bytes: int


class Scenario:
    """Runs the story step by step; every step is told through `say`."""

    def __init__(self, plan: DemoPlan, swarm: DemoSwarm, say: Callable[[str], None]) -> None:
        """Nothing happens before `begin`."""
        self._plan = plan
        self._swarm = swarm
        self._say = say
        self._started_s = time.monotonic()
        self._facts: dict[str, object] = {}
        self._heldout = b""

    def begin(self) -> str:
        """Found the run, start bootstrap peer and volunteers; returns an address to watch from."""
        manifest = self._plan.manifest
        self._say(f"run {manifest.run_id}: {manifest.model.num_blocks} blocks")
        corpus = load_corpus(
            manifest.corpus, data=None, cache_dir=StateDir(self._swarm.folder).cache_dir
        )
        heldout = corpus.heldout[: self._plan.eval_bytes]
        self._heldout = heldout.tobytes()
        blocks = [initial_block(manifest, index) for index in range(manifest.model.num_blocks)]
        start = score_blocks(manifest, blocks, heldout)
        order1 = order1_cross_entropy(corpus.train, heldout)
        self._facts |= {
            "run_id": manifest.run_id,
            "ce_start": start.final_nats,
            "ce_order1": order1,
            "bytes_scored": start.num_bytes,
        }
        self._say(
            f"cross entropy before training {start.final_nats:.3f} nats/byte, "
            f"order-1 byte model {order1:.3f}"
        )
        manifest_path = self._swarm.folder / "manifest.json"
        manifest_path.write_bytes(manifest.canonical_bytes())
        address = self._swarm.start_bootstrap(manifest_path)
        self._say(f"bootstrap peer at {address}")
        for index in range(self._plan.num_volunteers):
            self._swarm.start_volunteer(f"volunteer-{index + 1}", manifest.run_id, address)
        for volunteer in self._swarm.volunteers:
            wait_for(_is_training(volunteer), volunteer, what=volunteer.name, timeout_s=120)
        first = self._swarm.volunteers[0].snapshot
        assert first is not None
        self._say(f"{self._plan.num_volunteers} volunteers train, nobody coordinates them")
        return first.addresses[0]

    def run(self, visit: Visit, when_trained: Callable[[], None] | None = None) -> DemoReport:
        """Everything after the start; returns the report, with the swarm stopped.

        Args:
            visit: to look at the swarm and ask it.
            when_trained: called at the end of the training, when all volunteers are still there.
        """
        half_s = self._plan.train_s / 2
        training_started_s = time.monotonic()
        self._sleep_until(training_started_s + half_s / 2)
        self._kill_a_volunteer(visit)
        self._sleep_until(training_started_s + half_s)
        self._kill_the_bootstrap_peer()
        self._add_a_late_volunteer()
        self._sleep_until(training_started_s + self._plan.train_s)
        if when_trained is not None:
            when_trained()
        self._measure(visit)
        self._generate()
        return self.end()

    def end(self) -> DemoReport:
        """Stop everything and write the rest of the report."""
        snapshots = [volunteer.snapshot for volunteer in self._swarm.volunteers]
        alive = [snapshot for snapshot in snapshots if snapshot is not None]
        by_block = [0] * self._plan.manifest.model.num_blocks
        for snapshot in alive:
            if snapshot.block is not None:
                by_block[snapshot.block] += snapshot.rounds_averaged
        self._say("stopping all volunteers")
        self._swarm.stop(timeout_s=_STOP_TIMEOUT_S)
        leftovers = self._swarm.kill_leftovers()
        self._facts |= {
            "rounds": max(snapshot.round_index for snapshot in alive),
            "averaged_rounds": sum(by_block),
            "averaged_rounds_by_block": by_block,
            "bytes_sent": sum(snapshot.bytes_sent for snapshot in alive),
            "peers": len(alive),
            "seconds": time.monotonic() - self._started_s,
            "leftovers": leftovers,
        }
        return DemoReport.model_validate(self._facts)

    # --- the steps -----------------------------------------------------------------------------

    def _kill_a_volunteer(self, visit: Visit) -> None:
        """kill -9, wait until its lease has lapsed, and start it again."""
        victim = self._swarm.volunteers.pop()
        before = victim.snapshot
        assert before is not None
        killed_at_s = time.monotonic()
        victim.send(signal.SIGKILL)
        victim.wait_ended(timeout_s=5)
        self._say(f"{victim.name} (block {before.block}) was killed with kill -9")
        deadline_s = killed_at_s + 2 * LEASE_TTL_S
        while self._is_listed(visit, before.peer_id) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        dropped_after_s = time.monotonic() - killed_at_s
        self._facts["killed_dropped_after_s"] = dropped_after_s
        self._say(f"its lease lapsed: gone from the swarm's view after {dropped_after_s:.0f} s")
        address = self._swarm.volunteers[0].snapshot
        assert address is not None
        back = self._swarm.start_volunteer(
            victim.name, self._plan.manifest.run_id, address.addresses[0]
        )
        wait_for(_is_training(back), back, what=back.name, timeout_s=_JOIN_TIMEOUT_S)
        after = back.snapshot
        assert after is not None
        # whichever block is the thinnest by now
        self._facts["killed_came_back"] = after.peer_id == before.peer_id
        self._say(f"{back.name} is back with the same identity, on block {after.block}")

    def _kill_the_bootstrap_peer(self) -> None:
        assert self._swarm.bootstrap is not None
        self._swarm.bootstrap.send(signal.SIGKILL)
        self._swarm.bootstrap.wait_ended(timeout_s=5)
        self._say("the bootstrap peer was killed; the swarm goes on")

    def _add_a_late_volunteer(self) -> None:
        helper = self._swarm.volunteers[1].snapshot
        assert helper is not None
        late = self._swarm.start_volunteer(
            f"volunteer-{self._plan.num_volunteers + 1}",
            self._plan.manifest.run_id,
            helper.addresses[0],
        )
        wait_for(_is_training(late), late, what=late.name, timeout_s=_JOIN_TIMEOUT_S)
        text = late.log_path.read_text(encoding="utf-8")
        took = re.search(r"took round (\d+) of block (\d+)", text)
        self._facts["seventh_took_round"] = int(took.group(1)) if took else 0
        self._say(
            f"{late.name} joined through another volunteer"
            + (f", and took round {took[1]} of block {took[2]}" if took else "")
        )

    def _measure(self, visit: Visit) -> None:
        self._say("scoring held-out text through the swarm")
        score = score_model(visit.asked(), self._heldout)
        self._facts |= {
            "ce_end": score.final_nats,
            "ce_end_per_block": list(score.per_block_nats),
        }
        self._say(f"cross entropy after training {score.final_nats:.3f} nats/byte")

    def _generate(self) -> None:
        """Ask with the real program, in both modes."""
        entry = self._swarm.volunteers[0].snapshot
        assert entry is not None
        samples, traversals = {}, {}
        for mode in ("ar", "sweep"):
            arguments = ["generate", PROMPT, "--mode", mode, "--json", "--seed", "1"]
            arguments += ["--initial-peers", entry.addresses[0], "-n", str(self._plan.new_bytes)]
            done = subprocess.run(
                [sys.executable, "-m", "node", *arguments],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            if done.returncode != 0:
                raise SwarmError(f"generating with {mode} failed: {done.stderr.strip()}")
            answer = json.loads(done.stdout)
            samples[mode], traversals[mode] = answer["text"], answer["traversals"]
            self._say(f"{mode}, {answer['traversals']} traversals: {PROMPT}{answer['text']!r}")
        self._facts |= {"samples": samples, "traversals": traversals}

    def _is_listed(self, visit: Visit, peer_id: str) -> bool:
        blocks = visit.overview().blocks
        return any(lease.peer_id == peer_id for block in blocks for lease in block.holders)

    def _sleep_until(self, moment_s: float) -> None:
        """Wait, and notice when a volunteer ends that should not."""
        while time.monotonic() < moment_s:
            for volunteer in self._swarm.volunteers:
                if not volunteer.is_running:
                    raise SwarmError(f"{volunteer.name} ended early: {volunteer.last_lines()}")
            time.sleep(_POLL_S)


def _is_training(process: DemoProcess) -> Callable[[], str]:
    def condition() -> str:
        snapshot = process.snapshot
        return "yes" if snapshot and snapshot.state in {"training", "averaging"} else ""

    return condition


def write_report(report: DemoReport, folder: Path) -> Path:
    """Write `report.json`."""
    path = folder / "report.json"
    path.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return path
