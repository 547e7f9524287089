"""One scenario from its initial weights to its scores, and all scenarios of a config."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from benchmarks.quality.texts import TEST, VALID, Texts, load_texts
from benchmarks.quality.training import code_hash, write_atomically
from benchmarks.replicas.config import Scenario, SimConfig, read_config
from benchmarks.replicas.report import (
    Point,
    ScenarioResult,
    SimReport,
    draw_plot,
    make_set_up,
    render_sim,
)
from benchmarks.replicas.rounds import Replica, Swarm, attendance
from bt_p2p.averaging.outer import OuterMomentum
from bt_p2p.evaluation import score_blocks
from bt_p2p.model.block import initial_block
from bt_p2p.model.device import DeviceChoice
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.training.data import BatchSource
from bt_p2p.training.trainer import BlockTrainer
from node.stop import StopRequest
from node.tui.terminal import can_redraw, make_console


def run_sim(
    path: Path, data: Path | None, *, out: Path, jobs: Path, command: str, stop: StopRequest
) -> int:
    """Run what is not finished, then write the report; returns the exit code.

    Raises:
        ConfigError: config or texts are wrong.
    """
    console = make_console(stderr=True)
    config = read_config(path)
    texts = load_texts(data, cache_dir=jobs)
    if texts.note:
        console.print(texts.note)
    torch.set_num_threads(1)
    todo = [(seed, scenario) for scenario in config.scenarios for seed in config.seeds]
    results = []
    total = sum(scenario.replicas for _, scenario in todo) * config.steps
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    is_live = can_redraw(console)
    with Progress(*columns, console=console, disable=not is_live) as progress:
        task = progress.add_task("", total=total)

        def tick() -> bool:
            progress.advance(task)
            return not stop.is_requested

        for seed, scenario in todo:
            progress.update(task, description=scenario.name)
            file = jobs / f"{scenario.name}-s{seed}-{_hash(config, scenario, seed, texts)}.json"
            if file.is_file():
                result = ScenarioResult.model_validate_json(file.read_bytes())
                progress.advance(task, scenario.replicas * config.steps)
            else:
                found = run_scenario(config, scenario, seed, texts, tick)
                if found is None:
                    console.print(f"stopped; the same command goes on from here: {command}")
                    return stop.exit_code
                result = found
                write_atomically(file, result.model_dump_json() + "\n")
            results.append(result)
            console.print(f"{scenario.name}: {result.agreed_nats:.4f} nats/byte")
    report = SimReport(set_up=make_set_up(texts, command), config=config, results=tuple(results))
    write_atomically(out / "sim.json", report.model_dump_json(indent=2) + "\n")
    write_atomically(out / "sim.md", render_sim(report))
    draw_plot(report, out / "sim.svg")
    console.print(f"report: {out / 'sim.md'}")
    return 0


def run_scenario(
    config: SimConfig, scenario: Scenario, seed: int, texts: Texts, tick: Callable[[], bool]
) -> ScenarioResult | None:
    """Train and score; None if `tick`, called after each step, said to stop."""
    cpu_s = time.process_time()
    manifest = config.run_manifest(seed, texts.corpus)
    swarm = make_swarm(config, scenario, manifest, texts.train)
    num_rounds = config.steps // scenario.round_steps
    attends = attendance(seed, scenario, num_rounds)
    valid = texts.scored[VALID][: config.curve_bytes]
    curve = []
    for number in range(num_rounds):
        first = number * scenario.round_steps
        steps = range(first, first + scenario.round_steps)
        while_under_way, after = (
            steps[: scenario.average_takes],
            steps[scenario.average_takes :],
        )
        swarm.begin_round()
        if not _train(swarm.replicas, while_under_way, config.lr_steps, tick):
            return None
        swarm.arrive()
        if not _train(swarm.replicas, after, config.lr_steps, tick):
            return None
        swarm.end_round(attends[number].tolist())
        if steps.stop % config.eval_every == 0:
            nats = score_weights(manifest, _agreed(swarm), valid)
            curve.append(Point(step=steps.stop, nats=nats))
    test = texts.scored[TEST][: config.final_bytes]
    share = float(attends.mean()) if scenario.replicas > 1 else 1.0
    return ScenarioResult(
        scenario=scenario,
        seed=seed,
        agreed_nats=score_weights(manifest, _agreed(swarm), test),
        replica_nats=score_weights(manifest, swarm.replicas[0].trainer.weights(), test),
        bytes_scored=test.size - 1,
        curve=tuple(curve),
        rounds=num_rounds,
        attended_share=share,
        averages=swarm.averages,
        refused=swarm.refused,
        worker_bytes=swarm.bytes_sent / scenario.replicas,
        bad_steps=sum(replica.trainer.bad_steps for replica in swarm.replicas),
        cpu_s=time.process_time() - cpu_s,
    )


def make_swarm(
    config: SimConfig, scenario: Scenario, manifest: RunManifest, train: NDArray[np.uint8]
) -> Swarm:
    """Replicas with the same initial weights, each with its own order of the data."""
    spec = manifest.optimizer
    source = BatchSource(train, manifest.model.context, spec.batch_size)
    device = DeviceChoice(
        device=torch.device("cpu"), autocast_bf16=config.bf16, reason="as the config says"
    )
    replicas = [
        Replica(
            peer_id=peer_id,
            trainer=BlockTrainer(
                manifest, 0, device, source, peer_id, compile_block=config.compile
            ),
        )
        for peer_id in (f"replica-{index}" for index in range(scenario.replicas))
    ]
    outer = None
    if scenario.outer_lr is not None:
        outer = OuterMomentum(scenario.outer_momentum, lr=scenario.outer_lr)
        outer.begin(replicas[0].trainer.weights())
    return Swarm(scenario=scenario, replicas=replicas, outer=outer)


def score_weights(
    manifest: RunManifest, weights: Mapping[str, Tensor], text: NDArray[np.uint8]
) -> float:
    """Nats per byte of a block with these weights."""
    block = initial_block(manifest, 0)
    block.load_state_dict(weights)
    return score_blocks(manifest, [block], text).final_nats


def _train(replicas: list[Replica], steps: range, lr_steps: int, tick: Callable[[], bool]) -> bool:
    """Some local steps of all replicas; False when told to stop.

    The trainer's own rounds pace its learning rate and its data: equal steps then mean equal rates
    and equal batches in all scenarios, however long a round is.
    """
    for replica in replicas:
        for step in steps:
            if step % lr_steps == 0:
                replica.trainer.start_round(step // lr_steps)
            before = replica.trainer.samples_in_round
            replica.trainer.train_step()
            replica.num_samples += replica.trainer.samples_in_round - before
            if not tick():
                return False
    return True


def _agreed(swarm: Swarm) -> Mapping[str, Tensor]:
    """The last average; of replica 0 where there was none."""
    return swarm.replicas[0].trainer.weights() if swarm.agreed is None else swarm.agreed


def _hash(config: SimConfig, scenario: Scenario, seed: int, texts: Texts) -> str:
    """Of everything that decides the result."""
    manifest = config.run_manifest(seed, texts.corpus)
    document = config.model_copy(update={"scenarios": (scenario,), "seeds": (seed,)})
    parts = (manifest.fingerprint, document.model_dump_json(), code_hash())
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:12]
