"""The benchmark of replicas: how rounds end, the outer optimizer, reports, and one tiny run."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch

from benchmarks.quality.machine import Code, Machine
from benchmarks.quality.texts import load_texts
from benchmarks.replicas.cli import DEFAULT_CONFIG, app
from benchmarks.replicas.config import Scenario, SimConfig, read_config
from benchmarks.replicas.report import (
    SetUp,
    SwarmReport,
    SwarmResult,
    VolunteerResult,
    render_swarm,
)
from benchmarks.replicas.rounds import Contribution, Swarm, attendance, weighted_mean
from benchmarks.replicas.sim import make_swarm, run_scenario, run_sim
from bt_p2p.averaging.averager import PartnerReport
from bt_p2p.protocol.manifest import CorpusSpec
from bt_p2p.testing.averager import AveragingHub, InMemoryAverager
from bt_p2p.testing.tiny import tiny_manifest, tiny_weights
from node.command_line import run_app
from node.stop import StopRequest

TINY = """
steps = 8
lr_steps = 2
eval_every = 4
curve_bytes = 100
final_bytes = 100
bf16 = false
scenarios = [
    { name = "one", replicas = 1, round_steps = 2 },
    { name = "dropped", replicas = 2, round_steps = 2, participation = 0.5, missed = "dropped" },
    { name = "outer", replicas = 2, round_steps = 4, outer_lr = 0.7, outer_momentum = 0.9 },
]
[manifest]
model = { num_blocks = 1, layers_per_block = 1, d_model = 16, num_heads = 2, context = 16 }
objective = { sweep_max_bytes = 4 }
optimizer = { batch_size = 2 }
"""


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("wiki_train.txt", "wiki_valid.txt", "wiki_test.txt"):
        (folder / name).write_text("the quick brown fox jumps over the lazy dog. " * 30)
    return folder


@pytest.fixture
def swarm_of(config_path: Path, data: Path, tmp_path: Path):
    """Makes a swarm whose replicas have distinct weights: replica i is all i."""
    texts = load_texts(data, cache_dir=tmp_path)
    config = read_config(config_path)

    def make(scenario: Scenario) -> Swarm:
        swarm = make_swarm(config, scenario, config.run_manifest(0, texts.corpus), texts.train)
        for index in range(scenario.replicas):
            fill(swarm, index, float(index))
        return swarm

    return make


def fill(swarm: Swarm, index: int, value: float) -> None:
    trainer = swarm.replicas[index].trainer
    trainer.load_weights({name: torch.full_like(w, value) for name, w in trainer.weights().items()})


def values(swarm: Swarm) -> list[float]:
    """One weight of each replica."""
    found = []
    for replica in swarm.replicas:
        weights = replica.trainer.weights()
        found.append(float(next(iter(weights.values())).flatten()[0]))
    return found


def test_the_shipped_config_makes_runs() -> None:
    config = read_config(DEFAULT_CONFIG)
    assert config.steps == 1000
    assert config.run_manifest(0, CorpusSpec()).rounds.decay_rounds == 40


def test_attendance_follows_from_the_seed_and_grows_with_participation() -> None:
    low, high = (
        attendance(3, Scenario(name="x", participation=share), 400) for share in (0.42, 0.9)
    )
    assert (attendance(3, Scenario(name="y", participation=0.42), 400) == low).all()
    assert (attendance(4, Scenario(name="y", participation=0.42), 400) != low).any()
    assert (low <= high).all()
    assert low.mean() == pytest.approx(0.42, abs=0.05)
    assert attendance(3, Scenario(name="x"), 40).all()


def test_the_mean_is_the_one_of_the_librarys_averager() -> None:
    manifest = tiny_manifest()
    hub = AveragingHub()
    contributions = [
        Contribution(
            peer_id=f"p{block}",
            weights=tiny_weights(manifest, block),
            num_samples=1 + 3 * block,
            round_index=0,
        )
        for block in range(2)
    ]
    shapes = {name: w.shape for name, w in contributions[0].weights.items()}
    pending = [
        InMemoryAverager(hub, manifest, 0, shapes, peer_id=each.peer_id).begin(
            PartnerReport(round_index=0), ends_at_s=0.0
        )
        for each in contributions
    ]
    averages = []

    def finish(index: int) -> None:
        each = contributions[index]
        averages.append(
            pending[index].finish(
                each.weights, start=each.weights, num_samples=each.num_samples, timeout_s=5
            )
        )

    threads = [threading.Thread(target=finish, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, tensor in weighted_mean(contributions).items():
        torch.testing.assert_close(tensor, averages[0].weights[name], rtol=0, atol=1e-7)


def test_kept_work_is_brought_next_time(swarm_of) -> None:
    swarm = swarm_of(Scenario(name="x", replicas=3, participation=0.5))
    swarm.end_round([True, True, False])
    assert values(swarm) == [0.5, 0.5, 2.0]
    swarm.end_round([False, True, True])
    assert values(swarm) == [0.5, 1.25, 1.25]
    assert [replica.round_index for replica in swarm.replicas] == [2, 2, 2]


def test_dropped_work_is_lost_and_its_replica_catches_up(swarm_of) -> None:
    swarm = swarm_of(Scenario(name="x", replicas=3, participation=0.5, missed="dropped"))
    swarm.end_round([True, True, False])
    swarm.end_round([False, True, True])
    assert values(swarm) == [0.5, 0.5, 0.5]
    assert swarm.averages == 2


def test_late_work_is_averaged_in_one_round_later(swarm_of) -> None:
    swarm = swarm_of(Scenario(name="x", replicas=3, participation=0.5, missed="late"))
    swarm.end_round([True, True, False])
    assert values(swarm) == [0.5, 0.5, 0.5]
    swarm.end_round([True, True, True])
    assert values(swarm) == pytest.approx([(3 * 0.5 + 2.0) / 4] * 3)


def test_what_is_not_finite_is_refused(swarm_of) -> None:
    swarm = swarm_of(Scenario(name="x", replicas=2))
    fill(swarm, 1, float("inf"))
    swarm.end_round([True, True])
    assert values(swarm) == [0.0, float("inf")]
    assert (swarm.refused, swarm.agreed) == (2, None)


def test_a_full_average_moves_what_the_schedule_says(swarm_of) -> None:
    swarm = swarm_of(Scenario(name="x", replicas=2))
    swarm.end_round([True, True])
    size_bytes = sum(w.nbytes for w in swarm.replicas[0].trainer.weights().values())
    assert swarm.bytes_sent == 2 * size_bytes


def test_a_scenario_repeats_exactly(config_path: Path, data: Path, tmp_path: Path) -> None:
    config: SimConfig = read_config(config_path)
    texts = load_texts(data, cache_dir=tmp_path)
    first, second = (
        run_scenario(config, config.scenarios[1], 0, texts, lambda: True) for _ in range(2)
    )
    assert first is not None
    assert second is not None
    assert first.model_copy(update={"cpu_s": second.cpu_s}) == second


@pytest.mark.slow
def test_sim_stops_goes_on_and_reports(config_path: Path, data: Path, tmp_path: Path) -> None:
    stop = StopRequest()
    stop.signal_number = 2
    stop.event.set()
    places = {"out": tmp_path / "out", "jobs": tmp_path / "jobs", "command": "again"}
    assert run_sim(config_path, data, stop=stop, **places) == 130
    arguments = ["sim", "--config", str(config_path), "--data", str(data)]
    arguments += ["--out", str(tmp_path / "out"), "--jobs", str(tmp_path / "jobs")]
    done: list[object] = []
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["replicas", *arguments])
            patch.setattr(StopRequest, "listen", lambda self: None)
            assert run_app(app, "replicas") == 0
        results = json.loads((tmp_path / "out" / "sim.json").read_text())["results"]
        done.append(results)  # cpu_s differs if anything was trained again
    assert done[0] == done[1]
    text = (tmp_path / "out" / "sim.md").read_text()
    assert "2 replicas, outer lr 0.7, momentum 0.9" in text
    assert (tmp_path / "out" / "sim.svg").is_file()


def test_the_swarm_report_counts_participation() -> None:
    volunteer = VolunteerResult(
        block=0,
        steps=100,
        round_index=9,
        rounds_averaged=6,
        rounds_alone=1,
        rounds_failed=1,
        bytes_sent=5_000_000,
        cpu_s=40.0,
    )
    result = SwarmResult(
        title="3 blocks x 2",
        run_id="r",
        final_nats=2.5,
        per_block_nats=(2.6, 2.7, 2.8),
        bytes_scored=99,
        trained_s=150.0,
        volunteers=(volunteer, volunteer),
    )
    machine = Machine(
        cpu="c", num_cores=2, ram_size_bytes=1, gpu="", system="s", python="p", torch="t"
    )
    code = Code(commit="abc", is_dirty=False)
    set_up = SetUp(machine=machine, code=code, date="d", command="c", texts={}, note="")
    text = render_swarm(SwarmReport(set_up=set_up, seconds=150, swarms=(result,)))
    assert (
        "| 3 blocks x 2 | **2.5000** | 2.600, 2.700, 2.800 | 100 | 40 | 9 | 12 | 75% | 5.0 MB |"
        in text
    )
