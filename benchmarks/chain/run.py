"""The benchmark from options to report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.chain.config import ChainConfig, Setting, read_config
from benchmarks.chain.faults import run_objective
from benchmarks.chain.measure import Measured, SettingRun, StartSwarm, Tick, Weights
from benchmarks.chain.report import (
    ChainReport,
    FaultReport,
    compare,
    draw_plot,
    render_chain,
    render_faults,
)
from benchmarks.quality.config import config_path
from benchmarks.quality.config import read_config as read_quality_config
from benchmarks.quality.plan import plan_trainings
from benchmarks.quality.texts import VALID, Texts, load_texts
from benchmarks.quality.training import write_atomically
from benchmarks.replicas.report import make_set_up
from benchmarks.traversals.models import load_trained
from bt_p2p.errors import CheckpointError, ConfigError
from node.tui.terminal import can_redraw, make_console

_SAY_EVERY = 20
"""Answers between lines, where no bar can be drawn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the user asked for."""

    config: str
    data: Path | None
    """Folder of texts; None takes the embedded corpus."""
    trained: Path
    """Folder of finished trainings."""
    out: Path
    command: str


def run_chain(options: Options, start_swarm: StartSwarm) -> int:
    """Measure all settings and write the report; returns the exit code.

    Args:
        options: of the user.
        start_swarm: `swarm.chain_swarm`, or one in memory.

    Raises:
        ConfigError: an option is wrong.
        SwarmError: a holder does not start.
    """
    console = make_console(stderr=True)
    config = read_config(options.config)
    torch.set_num_threads(1)
    texts = load_texts(options.data, cache_dir=options.trained)
    prompts, notes = cut_prompts(config, texts), [texts.note] if texts.note else []
    found: list[Measured] = []
    total = sum(_num_answers(setting, config.repeats) for setting in config.settings)
    with _progress(console, total) as tick, tempfile.TemporaryDirectory() as folder:
        for setting in config.settings:
            chosen, weights, note = setting, None, ""
            if setting.trained_arm:
                try:
                    chosen, weights, note = with_trained(setting, texts, options.trained)
                except (ConfigError, CheckpointError) as exc:
                    console.print(str(exc))  # names folders, so it is not for the report
                    note = f"{setting.name} has its initial weights: {setting.trained_arm} is not trained here."
                notes.append(note)
            console.print(f"{setting.name}: starting holders. {note}")
            measuring = SettingRun(chosen, weights, prompts, start_swarm)
            found.append(measuring.run(Path(folder), tick, console.print))
    report = ChainReport(
        set_up=make_set_up(texts, options.command),
        config=config,
        notes=tuple(notes),
        figures=compare([one for each in found for one in each.figures]),
        crowds=tuple(one for each in found for one in each.crowds),
        smallest=tuple(one for each in found for one in each.smallest),
        num_bypasses=sum(each.num_bypasses for each in found),
    )
    write_atomically(options.out / "chain.json", report.model_dump_json(indent=2) + "\n")
    write_atomically(options.out / "chain.md", render_chain(report))
    draw_plot(report, options.out / "chain.svg")
    console.print(f"report: {options.out / 'chain.md'}")
    return 0


def run_faults(options: Options, start_swarm: StartSwarm) -> int:
    """Disturb answers and write the report; returns 1 if any answer differed."""
    console = make_console(stderr=True)
    config = read_config(options.config)
    torch.set_num_threads(1)
    texts = load_texts(options.data, cache_dir=options.trained)
    faults, figures = config.faults, []
    total = len(faults.objectives) * (faults.kills + faults.freezes)
    with _progress(console, total) as tick, tempfile.TemporaryDirectory() as folder:
        for objective in faults.objectives:
            prompt = cut_prompts(config, texts)[0]
            figures += run_objective(faults, objective, prompt, Path(folder), tick, start_swarm)
            for one in figures[-2:]:
                console.print(f"{objective}, {one.fault}: {one.num_identical}/{one.num_answers}")
    report = FaultReport(
        set_up=make_set_up(texts, options.command), config=config, figures=tuple(figures)
    )
    write_atomically(options.out / "faults.json", report.model_dump_json(indent=2) + "\n")
    write_atomically(options.out / "faults.md", render_faults(report))
    console.print(f"report: {options.out / 'faults.md'}")
    return int(any(one.num_identical < one.num_answers for one in figures))


def cut_prompts(config: ChainConfig, texts: Texts) -> list[bytes]:
    """One prompt for each repeat, evenly spread over the validation text."""
    text = texts.scored[VALID]
    step = (text.size - config.prompt_bytes) // config.repeats
    if step < 1:
        raise ConfigError(f"the text has {text.size} bytes, too few for the prompts")
    starts = range(0, step * config.repeats, step)
    return [text[start : start + config.prompt_bytes].tobytes() for start in starts]


def with_trained(setting: Setting, texts: Texts, folder: Path) -> tuple[Setting, Weights, str]:
    """The setting with the model of its trained arm, the weights, and what a reader has to know.

    Raises:
        ConfigError: it is not trained on these texts.
        CheckpointError: weights are missing or damaged.
    """
    trainings = plan_trainings(read_quality_config(config_path("cpu")), texts.corpus)
    trained = load_trained(trainings, setting.trained_arm, budget=None, seed=0, work=folder)
    update = {
        "model": trained.manifest.model.model_dump(),
        "objective": trained.manifest.objective.model_dump(exclude={"name"}),
    }
    note = f"{setting.name} has the weights of {trained.title}, sha256 {trained.sha256[:8]}."
    return setting.model_copy(update=update), trained.weights, note


def _num_answers(setting: Setting, repeats: int) -> int:
    answers = len(setting.links) * len(setting.lengths) * len(setting.ways)
    return repeats * (answers + len(setting.links) * len(setting.sessions))


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Tick]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    is_live = can_redraw(console)
    with Progress(*columns, console=console, disable=not is_live) as bars:
        task = bars.add_task("", total=total)
        done = count(1)

        def tick(what: str) -> None:
            number = next(done)
            bars.update(task, advance=1, description=what)
            if not is_live and number % _SAY_EVERY == 0:
                console.print(f"{number}/{total}: {what}")

        yield tick
