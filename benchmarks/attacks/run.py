"""One scenario from its initial weights to its scores, and all scenarios of a config."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import bt_p2p.averaging
from benchmarks.attacks.attackers import Attacker, FlippedLabels
from benchmarks.attacks.config import AttackConfig, Scenario, read_config
from benchmarks.attacks.report import (
    AttackReport,
    ScenarioResult,
    draw_plot,
    render_attacks,
)
from benchmarks.attacks.rounds import Replica, Swarm
from benchmarks.quality.texts import TEST, VALID, Texts, load_texts
from benchmarks.quality.training import code_hash, write_atomically
from benchmarks.replicas.report import make_set_up
from benchmarks.replicas.sim import score_weights
from bt_p2p.averaging.admission import is_finite
from bt_p2p.averaging.gate import Gate
from bt_p2p.averaging.outer import OuterMomentum
from bt_p2p.model.device import DeviceChoice
from bt_p2p.model.seeding import seeded_generator
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.training.data import BatchSource
from bt_p2p.training.heldout import HeldOutProbe
from bt_p2p.training.trainer import BlockTrainer
from node.stop import StopRequest
from node.tui.terminal import can_redraw, make_console


def run_attacks(
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
    todo = [(scenario, seed) for scenario in config.scenarios for seed in config.seeds]
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not can_redraw(console)) as progress:
        task = progress.add_task("", total=len(todo) * config.rounds)

        def tick() -> bool:
            progress.advance(task)
            return not stop.is_requested

        for scenario, seed in todo:
            progress.update(task, description=scenario.name)
            file = jobs / f"{scenario.name}-s{seed}-{_hash(config, scenario, seed, texts)}.json"
            if file.is_file():
                result = ScenarioResult.model_validate_json(file.read_bytes())
                progress.advance(task, config.rounds)
            else:
                found = run_scenario(config, scenario, seed, texts, tick)
                if found is None:
                    console.print(f"stopped; the same command goes on from here: {command}")
                    return stop.exit_code
                result = found
                write_atomically(file, result.model_dump_json() + "\n")
            results.append(result)
            nats = "not finite" if result.final_nats is None else f"{result.final_nats:.4f}"
            console.print(f"{scenario.name}: {nats} nats/byte, {result.cpu_s:.0f} s")
    report = AttackReport(set_up=make_set_up(texts, command), config=config, results=tuple(results))
    write_atomically(out / "attacks.json", report.model_dump_json(indent=2) + "\n")
    write_atomically(out / "attacks.md", render_attacks(report))
    draw_plot(report, out / "attacks.svg")
    console.print(f"report: {out / 'attacks.md'}")
    return 0


def run_scenario(
    config: AttackConfig, scenario: Scenario, seed: int, texts: Texts, tick: Callable[[], bool]
) -> ScenarioResult | None:
    """Train and score; None if `tick`, called after each round, said to stop."""
    started_s = time.process_time()
    manifest = config.run_manifest(seed, texts.corpus)
    swarm = make_swarm(manifest, scenario, texts)
    first = swarm.honest[0]
    valid = texts.scored[VALID][: config.curve_bytes]
    curve: list[float | None] = []
    for number in range(config.rounds):
        starts = {}
        for replica in swarm.replicas:
            starts[replica.peer_id] = replica.trainer.weights()
            replica.outer.begin(starts[replica.peer_id])
            replica.trainer.start_round(number)
            if replica.trains and is_finite(starts[replica.peer_id]):
                for _ in range(config.round_steps):
                    replica.trainer.train_step()
        swarm.end_round(number, starts)
        agrees = is_finite(first.agreed)
        curve.append(score_weights(manifest, first.agreed, valid) if agrees else None)
        if not tick():
            return None
    test = texts.scored[TEST][: config.final_bytes]
    agreed = {id(replica.agreed): replica.agreed for replica in swarm.honest}  # mostly the same
    scores = {
        key: score_weights(manifest, weights, test)
        for key, weights in agreed.items()
        if is_finite(weights)
    }
    found = [scores.get(id(replica.agreed)) for replica in swarm.honest]
    nats = [each for each in found if each is not None]
    tally = swarm.tally
    num_judged = max(1, len(swarm.honest) * config.rounds)
    return ScenarioResult(
        scenario=scenario,
        seed=seed,
        final_nats=fmean(nats) if nats else None,
        worst_nats=max(nats, default=None),
        curve=tuple(curve),
        averages=tally.averages,
        refused=tally.refused,
        failed=tally.failed,
        attackers_refused=len(tally.first_refusal),
        last_first_refusal=max(tally.first_refusal.values(), default=None),
        wrongly_refused=tally.wrongly_refused,
        merge_ms=1000 * tally.merge_s / num_judged,
        judge_ms=1000 * tally.judge_s / num_judged,
        cpu_s=time.process_time() - started_s,
    )


def make_swarm(manifest: RunManifest, scenario: Scenario, texts: Texts) -> Swarm:
    """Replicas with the same initial weights, each with its own data; the last ones are hostile."""
    spec = manifest.optimizer
    device = DeviceChoice(device=torch.device("cpu"), autocast_bf16=False, reason="repeatable")
    replicas = []
    for index in range(scenario.replicas):
        is_hostile = index >= scenario.replicas - scenario.num_attackers
        peer_id = f"replica-{index}"
        make_source = FlippedLabels if is_hostile and scenario.kind == "label_flip" else BatchSource
        source = make_source(texts.train, manifest.model.context, spec.batch_size)
        probe = HeldOutProbe(manifest, 0, device, texts.scored[VALID], seed=index)
        attacker = None
        if is_hostile and scenario.kind is not None:
            noise = seeded_generator(f"benchmarks/attacks/{manifest.seed}/{index}")
            attacker = Attacker(scenario.kind, noise)
        replicas.append(
            Replica(
                peer_id=peer_id,
                trainer=BlockTrainer(manifest, 0, device, source, peer_id),
                outer=OuterMomentum(manifest.rounds.outer_momentum),
                gate=Gate(peer_id, probe),
                attacker=attacker,
            )
        )
    order = seeded_generator(f"benchmarks/attacks/order/{manifest.seed}")
    return Swarm(replicas, scenario.protection, order)


def _hash(config: AttackConfig, scenario: Scenario, seed: int, texts: Texts) -> str:
    """Of everything that decides the result."""
    manifest = config.run_manifest(seed, texts.corpus)
    decisive = config.model_dump_json(
        include={"rounds", "round_steps", "final_bytes", "curve_bytes"}
    )
    admission = "".join(
        path.read_text(encoding="utf-8")
        for path in sorted(Path(bt_p2p.averaging.__file__).parent.glob("*.py"))
    )
    parts = (manifest.fingerprint, scenario.model_dump_json(), decisive, code_hash(), admission)
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:12]
