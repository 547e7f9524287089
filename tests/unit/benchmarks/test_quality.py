"""The benchmark of quality: what it plans, what it computes, and one tiny run of it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.quality.cli import app
from benchmarks.quality.config import FOLDER, QualityConfig, config_path, read_config
from benchmarks.quality.figures import best_nats_at, compare, nats_at
from benchmarks.quality.machine import Code, Machine
from benchmarks.quality.measured import ArmResult, CurvePoint, SeedResult
from benchmarks.quality.plan import eval_steps, plan_trainings, upstream_step
from benchmarks.quality.plots import draw_plots
from benchmarks.quality.progress import Progression
from benchmarks.quality.report import render_report
from benchmarks.quality.results import Results, TextFacts
from benchmarks.quality.run import QualityOptions, run_benchmark
from benchmarks.quality.scoring import TextScore
from benchmarks.quality.tasks import open_tasks, urgency
from benchmarks.quality.texts import load_texts
from benchmarks.quality.training import (
    JobContext,
    JobRecord,
    Stopwatch,
    load_weights,
    read_record,
    train_block,
)
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import CorpusSpec
from bt_p2p.testing.clock import ManualClock
from node.command_line import run_app
from node.stop import StopRequest

TINY = """
seeds = [3]
batch_size = 4
steps_per_round = 5
evals = 2
curve_bytes = 200

[model]
d_model = 16
num_heads = 2
context = 16
total_layers = 2

[objective]
sweep_max_bytes = 4

[[budgets]]
name = "b"
steps = 20

[[arms]]
name = "whole"
objective = "end_to_end"
"""
BLOCKS = """
[[arms]]
name = "alone"
objective = "plain"
num_blocks = 2
"""
CASCADE = """
[[arms]]
name = "deep"
objective = "cascade"
num_blocks = 2
refresh_steps = 4
"""
CORPUS = CorpusSpec(kind="text", name="t")


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a config file."""

    def write(text: str) -> Path:
        path = tmp_path / "tiny.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with small texts."""
    folder = tmp_path / "data"
    folder.mkdir()
    words = "the cat sat on a mat and then it slept all day long in the sun "
    for name, repeats in (("wiki_train", 40), ("wiki_valid", 5), ("wiki_test", 4)):
        (folder / f"{name}.txt").write_text(words * repeats, encoding="utf-8")
    return folder


def tiny(text: str = TINY + BLOCKS, **changes: object) -> QualityConfig:
    """A config from its text, with other values in places."""
    import tomllib

    return QualityConfig.model_validate({**tomllib.loads(text), **changes})


# Configs


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.toml")))
def test_configs_beside_the_code_make_valid_manifests(name):
    """Every named config is valid, and all its arms have the same number of layers."""
    config = read_config(config_path(name))
    models = [training.manifest.model for training in plan_trainings(config, CORPUS)]
    layers = {model.num_blocks * model.layers_per_block for model in models}
    assert {config.model.total_layers} == layers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arms = [", "not valid TOML"),
        ("[[arms]]\nname = 'x'\nobjective = 'plain'\n", "budgets: Field required"),
        (TINY.replace("steps = 20", "steps = 21"), "no multiple of steps_per_round 5"),
        (TINY.replace('"whole"', '"Whole!"'), "arms.0.name"),
        (TINY + BLOCKS.replace("num_blocks = 2", "num_blocks = 3"), "does not come out even"),
        (TINY + TINY[TINY.index("[[arms]]") :], "arm whole is there more than once"),
        (TINY + "budgets = ['c']\n", "arm whole names budget c"),
        (TINY + "layer = 3\n", "arms.0.layer: Extra inputs"),
    ],
)
def test_a_wrong_config_is_refused_in_one_line(write_config, text, words):
    """The message names the field or the arm, on one line."""
    with pytest.raises(ConfigError) as caught:
        read_config(write_config(text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_option_of_an_objective_names_the_arm():
    """What only the manifest can refuse is refused before anything is trained."""
    config = tiny(TINY + BLOCKS + "options = { sigma_mim = 1.0 }\n")
    with pytest.raises(ConfigError, match=r"arm alone: .*objective\.sigma_mim"):
        plan_trainings(config, CORPUS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "nope"], "one of: cpu, gpu, quick"),
        (["--data", "/nope/nope"], "no folder /nope/nope"),
    ],
)
def test_wrong_options_end_with_2_and_one_line(monkeypatch, capsys, arguments, words):
    """No traceback, a line that says what there is."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test keeps its own handlers
    monkeypatch.setattr("sys.argv", ["quality", *arguments])
    assert 2 == run_app(app, "quality")
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert 1 == len(lines)
    assert words in lines[0]


# Plans


def test_the_decay_of_the_learning_rate_ends_with_the_budget():
    """Rounds of the manifest are steps over steps_per_round."""
    training = plan_trainings(tiny(), CORPUS)[0]
    assert 4 == training.manifest.rounds.decay_rounds
    assert 3 == training.manifest.seed


def test_a_folder_is_named_after_everything_that_counts():
    """Equal plans share a folder; any other value makes another one."""
    base = plan_trainings(tiny(), CORPUS)
    assert [one.folder_name for one in base] == [
        one.folder_name for one in plan_trainings(tiny(), CORPUS)
    ]
    others = [
        plan_trainings(config, corpus)[1].folder_name
        for config, corpus in (
            (tiny(batch_size=5), CORPUS),
            (tiny(seeds=[4]), CORPUS),
            (tiny(compile=True), CORPUS),
            (tiny(bf16=True), CORPUS),
            (tiny(evals=4), CORPUS),
            (tiny(optimizer={"learning_rate": 1e-3}), CORPUS),
            (tiny(), CorpusSpec(kind="text", name="u")),
        )
    ]
    assert len(set(others) | {base[1].folder_name}) == len(others) + 1


def test_the_age_of_copies_counts_only_for_a_cascade():
    """refresh_steps is no part of the name of a training without it."""
    alone = {
        plan_trainings(tiny(TINY + BLOCKS + f"refresh_steps = {steps}\n"), CORPUS)[1].folder_name
        for steps in (4, 5)
    }
    deep = {
        plan_trainings(tiny(TINY + CASCADE.replace("4", steps)), CORPUS)[1].folder_name
        for steps in ("4", "5")
    }
    assert (1, 2) == (len(alone), len(deep))


def test_points_of_a_curve_end_with_the_training():
    """Evenly spread, each once, and the last is the end."""
    assert (4, 7, 10) == eval_steps(10, 3)
    assert (1, 2, 3) == eval_steps(3, 50)


def test_upstream_copies_are_renewed_at_multiples_of_refresh_steps():
    """A block sees copies of up to refresh_steps - 1 steps ago, at first the initial weights."""
    assert [0, 0, 0, 0, 4, 4, 4, 4, 8] == [upstream_step(step, 4) for step in range(9)]


def test_a_cascade_keeps_the_weights_that_the_blocks_above_will_read():
    """All blocks but the last keep every refresh; the last, and other objectives, only the curve."""
    whole, deep = plan_trainings(tiny(TINY + CASCADE), CORPUS)
    assert {10, 20} == whole.kept_steps(0)
    assert {4, 8, 10, 12, 16, 20} == deep.kept_steps(0)
    assert {10, 20} == deep.kept_steps(1)
    wanted = {upstream_step(step, 4) for step in range(20)} - {0}
    assert wanted <= deep.kept_steps(0)


def test_every_block_has_its_own_order_of_the_data():
    """Peers of the data order are named after arm and block."""
    training = plan_trainings(tiny(), CORPUS)[1]
    assert ["alone/0", "alone/1"] == [training.peer_id(block) for block in range(2)]


def test_tasks_wait_for_what_they_need_and_long_chains_go_first(tmp_path, data):
    """Blocks of a cascade one after another, scores last; the head of the chain is urgent."""
    texts = load_texts(data, cache_dir=tmp_path)
    trainings = plan_trainings(tiny(TINY + BLOCKS + CASCADE), texts.corpus)[1:]
    tasks = open_tasks(trainings, texts, curve_bytes=200, jobs=tmp_path / "jobs")
    needs = [[key.rpartition("/")[2] for key in sorted(task.needs)] for task in tasks]
    assert [[], [], ["0", "1"], [], ["0"], ["0", "1"]] == needs
    order = urgency(tasks)
    assert max(tasks, key=lambda task: order[task.key]).title == "deep b seed 3 block 0"


def test_time_left_counts_only_what_this_session_did(tmp_path, data):
    """A job that goes on in its middle does not make the rest look fast."""
    texts = load_texts(data, cache_dir=tmp_path)
    trainings = plan_trainings(tiny(TINY), texts.corpus)
    task = open_tasks(trainings, texts, curve_bytes=200, jobs=tmp_path / "jobs")[0]
    clock = ManualClock()
    progress = Progression([task], clock)
    assert progress.left_s == float("inf")
    clock.advance(2.0)
    progress.advance(task, 11)
    progress.advance(task, 12)
    assert pytest.approx(8.0) == progress.left_s


# Figures


def point(step: int, seconds: float, nats: float) -> CurvePoint:
    """A point whose wall clock runs twice as long as its CPU clock."""
    return CurvePoint(
        step=step, cpu_s=seconds, wall_s=2 * seconds, nats=nats, per_block_nats=(nats, nats)
    )


def record(**values: int) -> JobRecord:
    """What a worker took, made up."""
    facts = {"block": 0, "steps": 2, "wall_s": 1, "cpu_s": 1, "startup_s": 4, "bad_steps": 0}
    facts |= {"num_parameters": 10, "weights_size_bytes": 40, "optimizer_size_bytes": 60}
    facts |= {"upstream_size_bytes": 0, **values}
    return JobRecord.model_validate({**facts, "moments": [], "code": "abc", "torch": "2"})


def arm_result(
    name: str, objective: str, curves: list[list[CurvePoint]], *, budget: str = "b"
) -> ArmResult:
    """An arm whose last score is that of its curve on every text."""
    num_blocks = 1 if objective == "end_to_end" else 2
    seeds = []
    for seed, curve in enumerate(curves):
        score = TextScore(
            nats=curve[-1].nats,
            bits_per_byte=curve[-1].nats / 0.693,
            per_block_nats=(curve[-1].nats + 0.05,) * num_blocks,
            num_bytes=99,
        )
        share = 2 // num_blocks
        worker = record(num_parameters=10 * share, optimizer_size_bytes=60 * share)
        seeds.append(
            SeedResult(
                seed=seed,
                curve=tuple(curve),
                final={"valid": score, "test": score},
                workers=(worker,) * num_blocks,
            )
        )
    return ArmResult(
        arm=name,
        objective=objective,
        num_blocks=num_blocks,
        layers_per_block=2 // num_blocks,
        budget=budget,
        steps=2,
        bytes_seen=5_000_000,
        seeds=tuple(seeds),
    )


CURVE = [point(1, 10.0, 2.0), point(2, 20.0, 1.0)]


def test_a_curve_is_read_between_its_points():
    """Straight lines between points; None before the first; the last point after the end."""
    assert nats_at(CURVE, 9.9, "cpu") is None
    readings = [nats_at(CURVE, seconds, "cpu") for seconds in (10.0, 15.0, 20.0, 21.0)]
    assert [2.0, 1.5, 1.0, 1.0] == [reading.nats for reading in readings if reading]
    assert [False, False, False, True] == [reading.is_at_end for reading in readings if reading]
    on_the_wall = nats_at(CURVE, 30.0, "wall")
    assert on_the_wall is not None
    assert on_the_wall.nats == 1.5


def test_the_best_of_several_curves_may_be_a_shorter_training():
    """A training that was done by then beats one that still has a high learning rate."""
    short = [point(1, 5.0, 1.4)]
    assert best_nats_at([CURVE, short], 15.0, "cpu") == 1.4
    assert best_nats_at([CURVE], 1.0, "cpu") is None


def test_gaps_are_to_end_to_end_of_the_same_seed():
    """Equal steps: last scores. Equal time: end to end where the slowest worker had ended."""
    whole = arm_result("whole", "end_to_end", [CURVE, [point(1, 10, 2.2), point(2, 20, 1.2)]])
    quick = arm_result("quick", "end_to_end", [[point(1, 6, 1.5)], [point(1, 6, 1.7)]], budget="q")
    blocks = arm_result("alone", "plain", [[point(2, 15, 1.1)], [point(2, 15, 1.3)]])
    whole_found, _, found = compare([whole, quick, blocks], "cpu")
    assert pytest.approx({"valid": 0.1, "test": 0.1}) == found.gap_nats
    assert pytest.approx(-0.4) == found.equal_time.gap_nats
    assert pytest.approx(-0.4) == found.equal_time.best_gap_nats
    assert not found.equal_time.is_at_end
    assert (0.5, 0.5) == (found.parameters_share, found.optimizer_share)
    assert (0.0, 0.0) == (whole_found.gap_nats["test"], whole_found.equal_time.gap_nats)


def test_without_end_to_end_there_are_no_gaps():
    """Nothing to compare with is no reason to fail."""
    found = compare([arm_result("alone", "plain", [CURVE])], "cpu")[0]
    assert (None, None) == (found.gap_nats["test"], found.equal_time.gap_nats)
    assert found.optimizer_share is None


def test_first_steps_count_like_the_others():
    """Compiling is told apart from training, in every session."""
    watch = Stopwatch(wall_s=10.0, cpu_s=5.0, startup_s=1.0)
    assert (10.0, 5.0, 1.0) == (watch.wall_s, watch.cpu_s, watch.startup_s)
    for seconds in (30.0, 2.0, 2.0):
        watch.add(seconds, seconds / 2)
    assert pytest.approx((16.0, 8.0, 29.0)) == (watch.wall_s, watch.cpu_s, watch.startup_s)


# Reports


def results(*arms: ArmResult, notes: tuple[str, ...] = ()) -> Results:
    """Results of arms that were never trained."""
    facts = TextFacts(name="t.txt", size_bytes=100, sha256="ab" * 32)
    return Results(
        config_name="tiny",
        config=tiny(),
        clock="cpu",
        texts={"train": facts, "valid": facts, "test": facts},
        curve_bytes=50,
        notes=notes,
        machine=Machine(
            cpu="a CPU", num_cores=2, ram_size_bytes=8_000_000_000, gpu="", system="Linux x86_64",
            python="3.11", torch="2",
        ),
        code=Code(commit="0123456789abcdef", is_dirty=True),
        date="2026-01-01T00:00:00+00:00",
        command="python -m benchmarks.quality",
        arms=arms,
        comparisons=compare(arms, "cpu"),
    )  # fmt: skip


def test_the_report_shows_every_figure():
    """Seeds and mean, gaps with their sign, shares, blocks alone, notes, machine and commit."""
    whole = arm_result("whole", "end_to_end", [CURVE, CURVE])
    blocks = arm_result("alone", "plain", [[point(2, 30, 1.1)], [point(2, 30, 1.3)]])
    text = render_report(results(whole, blocks, notes=("a note",)))
    for part in (
        "| alone (2 x 1) | b | 2 | 5.0 | **1.2000** (1.1000, 1.3000) |",
        "| +0.2000 | +0.2000 |",
        "| alone (2 x 1) | b | 30 | 60 | +0.2000\\* | +0.2000 |",
        "| alone (2 x 1) | 10 | 50.0% | 60 B | 50.0% | – |",  # noqa: RUF001
        "| alone (2 x 1) | b | 1.2000 | 1.2500, 1.2500 |",
        "**Note.** a note",
        "a CPU, 2 cores",
        "commit 0123456789ab with local changes",
        "quality-steps.svg",
    ):
        assert part in text
    assert "WikiText" not in text


def test_a_report_of_nothing_says_so():
    """As long as no training is finished."""
    assert "No training is finished yet." in render_report(results())


@pytest.mark.slow
def test_plots_are_drawn_with_a_panel_for_each_budget(tmp_path):
    """Two SVG files that name the arms; the same results give the same bytes."""
    found = results(
        arm_result("whole", "end_to_end", [CURVE, CURVE]),
        arm_result("alone", "plain", [CURVE], budget="long"),
    )
    paths = draw_plots(found, tmp_path)
    assert ["quality-steps.svg", "quality-time.svg"] == [path.name for path in paths]
    before = [path.read_bytes() for path in paths]
    assert all(b"whole" in text and b"long" in text for text in before)
    assert before == [path.read_bytes() for path in draw_plots(found, tmp_path)]


# Runs


def context(jobs: Path, data: Path, *, stop_at: int | None = None) -> JobContext:
    """A place to run jobs, which are stopped after some steps."""
    seen: list[int] = []
    return JobContext(
        jobs=jobs,
        texts=load_texts(data, cache_dir=jobs),
        on_progress=seen.append,
        is_stopped=lambda: stop_at is not None and seen[-1] == stop_at,
    )


@pytest.mark.slow
def test_a_stopped_job_goes_on_and_ends_with_the_same_weights(tmp_path, data):
    """A block of a cascade, stopped in the middle of a round and of a refresh."""
    here, there = tmp_path / "here", tmp_path / "there"
    training = plan_trainings(tiny(TINY + CASCADE), load_texts(data, cache_dir=here).corpus)[1]
    for jobs in (here, there):
        assert train_block(training, 0, context(jobs, data))
    assert train_block(training, 1, context(here, data))
    assert not train_block(training, 1, context(there, data, stop_at=13))
    assert not training.is_done(there)
    assert train_block(training, 1, context(there, data))
    assert training.is_done(there)
    ends = [load_weights(training.weights_path(jobs, 1, 20)) for jobs in (here, there)]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    records = [read_record(training.done_path(jobs, 1)) for jobs in (here, there)]
    assert [[10, 20]] * 2 == [[moment.step for moment in one.moments] for one in records]
    assert all(one.upstream_size_bytes > 0 for one in records)
    assert not list(training.block_folder(there, 1).glob("state*"))


def options(tmp_path: Path, config: Path, data: Path | None, **changes: object) -> QualityOptions:
    """A run in one process."""
    values = {
        "config": str(config), "data": data, "out": tmp_path / "out", "jobs": tmp_path / "jobs",
        "workers": 0, "is_report_only": False, "as_json": False, "command": "again",
    }  # fmt: skip
    return QualityOptions(**{**values, **changes})


@pytest.mark.slow
def test_a_run_is_reported_and_not_done_twice(tmp_path, write_config, data, capsys):
    """All three objectives end to end; the second run trains nothing and prints the same."""
    config = write_config(TINY + BLOCKS + CASCADE)
    assert 0 == run_benchmark(options(tmp_path, config, data, as_json=True), StopRequest())
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "results.json").read_text())
    assert ["whole", "alone", "deep"] == [arm["arm"] for arm in printed["arms"]]
    assert {"valid", "test"} == printed["comparisons"][1]["mean_nats"].keys()
    assert all(0 < found["mean_nats"]["test"] < 6 for found in printed["comparisons"])
    assert "| deep (2 x 1) |" in (tmp_path / "out" / "quality.md").read_text()

    assert 0 == run_benchmark(options(tmp_path, config, data, as_json=True), StopRequest())
    again = capsys.readouterr()
    assert "tasks to do" not in again.err
    assert printed["arms"] == json.loads(again.out)["arms"]


def test_a_stop_says_how_to_go_on(tmp_path, write_config, data, capsys):
    """The exit code is that of the signal, nothing is reported, and a report-only run says why."""
    stop = StopRequest()
    stop.signal_number = signal.SIGINT
    stop.event.set()
    config = write_config(TINY)
    assert 130 == run_benchmark(options(tmp_path, config, data), stop)
    assert "stopped; the same command goes on from here: again" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    only = options(tmp_path, config, data, is_report_only=True)
    assert 0 == run_benchmark(only, StopRequest())
    assert "0 of 1 trainings" in (tmp_path / "out" / "quality.md").read_text()


@pytest.mark.slow
def test_tasks_run_in_processes_of_their_own(tmp_path, write_config, data):
    """The same figures as in one process."""
    config = write_config(TINY)
    found = []
    for name, workers in (("apart", 2), ("here", 0)):
        chosen = options(tmp_path / name, config, data, workers=workers)
        assert 0 == run_benchmark(chosen, StopRequest())
        document = json.loads((chosen.out / "results.json").read_text())
        found.append(document["comparisons"][0]["mean_nats"])
    assert found[0] == found[1]
