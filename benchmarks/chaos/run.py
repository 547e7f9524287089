"""Two swarms beside each other, one of them under faults, and what became of both."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.config import ChaosConfig
from benchmarks.chaos.faults import Injector
from benchmarks.chaos.fleet import Fleet, now_s
from benchmarks.chaos.plan import make_plan
from benchmarks.chaos.report import ChaosReport, SwarmResult, draw_plot, render
from benchmarks.chaos.watch import Watch
from benchmarks.quality.training import write_atomically
from benchmarks.replicas.report import SetUp
from bt_p2p.corpus.corpus import load_corpus
from bt_p2p.errors import SwarmError
from bt_p2p.evaluation import Score, score_blocks
from bt_p2p.model.block import Block, initial_block
from bt_p2p.model.checkpoint import Checkpoint, load_checkpoint
from bt_p2p.protocol.manifest import RunManifest
from node.state_dir import StateDir, default_cache_dir
from node.tui.terminal import make_console

_POLL_S = 0.25
_JOIN_TIMEOUT_S = 300.0
_WEIGHT = "weight/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Where results go."""

    config: ChaosConfig
    name: str
    """Of the report's files."""
    out: Path
    jobs: Path
    """For state and output of the programs; kept if the run fails."""
    set_up: SetUp


def run_chaos(options: Options) -> int:
    """Run both swarms and write the report; 0 only if all targets are met."""
    console = make_console(stderr=True)
    config = options.config
    root = options.jobs / f"chaos-{secrets.token_hex(3)}"
    with ExitStack() as stack:
        twin, disturbed = (Fleet(title, root / title, config) for title in ("twin", "disturbed"))
        for fleet in (twin, disturbed):
            stack.callback(fleet.clear)
        console.print(f"starting 2 x {config.num_blocks * config.replicas} volunteers in {root}")
        injector, watches, left = _live(twin, disturbed, config, console.print)
        results = {
            fleet.title: _result(fleet, watches[fleet.title], left[fleet.title])
            for fleet in (twin, disturbed)
        }
    report = ChaosReport(
        set_up=options.set_up,
        config=config,
        injected=tuple(injector.done),
        skipped=injector.num_skipped,
        slow_leavers=tuple(injector.slow_leavers),
        disturbed=results["disturbed"],
        twin=results["twin"],
    )
    text = render(report, options.name)
    write_atomically(options.out / f"{options.name}.json", report.model_dump_json(indent=1) + "\n")
    write_atomically(options.out / f"{options.name}.md", text)
    draw_plot(report, options.out / f"{options.name}.svg")
    console.print(text, markup=False)
    if report.problems():
        console.print(f"output of the programs is kept in {root}")
        return 1
    shutil.rmtree(root, ignore_errors=True)
    return 0


def _live(
    twin: Fleet,
    disturbed: Fleet,
    config: ChaosConfig,
    say: Callable[[str], None],
) -> tuple[Injector, dict[str, Watch], dict[str, int]]:
    """Start, disturb and end both; no process outlives it, whatever happens."""
    fleets = (twin, disturbed)
    left = {}
    try:
        for fleet in fleets:
            fleet.start()
        _wait_until_all_train(fleets)
        watches = {fleet.title: Watch(fleet) for fleet in fleets}
        say(f"all train; {config.num_faults} faults in {config.seconds:.0f} s")
        started_s = now_s()

        def say_at(text: str) -> None:
            say(f"[{now_s() - started_s:5.0f} s] {text}")

        injector = Injector(disturbed, make_plan(config), say_at)
        end_s = started_s + config.seconds
        while now_s() < end_s or not injector.is_over:
            injector.tick()
            for fleet in fleets:
                watches[fleet.title].tick()
                fleet.notice_recoveries(now_s())
            time.sleep(_POLL_S)
        say_at("ending both")
    finally:
        for fleet in fleets:
            left[fleet.title] = fleet.end()
    return injector, watches, left


def _wait_until_all_train(fleets: tuple[Fleet, ...]) -> None:
    deadline_s = now_s() + _JOIN_TIMEOUT_S
    crew = [volunteer for fleet in fleets for volunteer in fleet.crew]
    while not all(volunteer.is_training for volunteer in crew):
        for fleet in fleets:
            fleet.notice_recoveries(now_s())
        for volunteer in crew:
            if not volunteer.is_running:
                assert volunteer.process is not None
                raise SwarmError(f"{volunteer.name} ended early: {volunteer.process.last_lines()}")
        if now_s() > deadline_s:
            raise SwarmError(f"the volunteers did not all train within {_JOIN_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _result(fleet: Fleet, watch: Watch, num_left: int) -> SwarmResult:
    score = _score(fleet)
    totals = watch.totals()
    return SwarmResult(
        title=fleet.title,
        run_id=fleet.manifest.run_id,
        final_nats=score.final_nats,
        per_block_nats=score.per_block_nats,
        averaged=totals.averaged,
        alone=totals.alone,
        failed=totals.failed,
        missed=watch.missed(),
        crashes=tuple(watch.crashes),
        stalls=tuple(watch.stalls),
        sizes=watch.sizes(),
        curve=tuple(watch.curve),
        leftover_processes=num_left,
        leftover_ports=len(fleet.busy_ports()),
        leftover_files=tuple(fleet.temporary_files()),
    )


def _score(fleet: Fleet) -> Score:
    """The composition of the newest replicas' blocks, as they were saved on leaving."""
    manifest, config = fleet.manifest, fleet.config
    corpus = load_corpus(manifest.corpus, data=None, cache_dir=default_cache_dir())
    blocks = [_newest(fleet, manifest, block) for block in range(config.num_blocks)]
    return score_blocks(manifest, blocks, corpus.heldout[: config.eval_bytes])


def _newest(fleet: Fleet, manifest: RunManifest, index: int) -> Block:
    """A block as the replica that was furthest has saved it."""
    found: list[Checkpoint] = []
    for volunteer in fleet.crew:
        if volunteer.block == index:
            path = StateDir(volunteer.state_path).checkpoint_path(manifest.run_id, index)
            checkpoint = load_checkpoint(path)
            if checkpoint is not None:
                found.append(checkpoint)
    if not found:
        raise SwarmError(f"no replica has saved block {index}")
    newest = max(found, key=lambda checkpoint: int(checkpoint.facts["round_index"]))
    block = initial_block(manifest, index)
    block.load_weights(
        {
            name.removeprefix(_WEIGHT): tensor
            for name, tensor in newest.tensors.items()
            if name.startswith(_WEIGHT)
        }
    )
    return block
