"""The benchmark from config to report."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.quality.config import QualityConfig, config_path, read_config
from benchmarks.quality.machine import num_usable_cores, this_code, this_machine
from benchmarks.quality.plan import Training, plan_trainings
from benchmarks.quality.plots import draw_plots
from benchmarks.quality.pool import Pool, Workplace, run_here
from benchmarks.quality.progress import make_reporter
from benchmarks.quality.report import render_report
from benchmarks.quality.results import Results, make_results
from benchmarks.quality.tasks import Task, open_tasks
from benchmarks.quality.texts import Texts, load_texts
from benchmarks.quality.training import write_atomically
from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError
from bt_p2p.model.device import pick_device
from bt_p2p.training.data import BatchSource
from node.log_setup import is_debugging
from node.stop import StopRequest
from node.tui.terminal import make_console

RESULTS_FILE = "results.json"
REPORT_FILE = "quality.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityOptions:
    """What the user asked for."""

    config: str
    """Name or path."""
    data: Path | None
    """Folder of texts; None takes the embedded corpus."""
    out: Path
    jobs: Path
    workers: int | None
    """None: as many as there are cores, one on a GPU. 0: no processes of their own."""
    is_report_only: bool
    as_json: bool
    command: str
    """As it was typed, for the report and for the line that says how to go on."""


def run_benchmark(options: QualityOptions, stop: StopRequest) -> int:
    """Do what is not done yet, then write the report; returns the exit code.

    Args:
        options: see there.
        stop: ends it early, in order.

    Raises:
        ConfigError: config, texts or device are wrong.
        BtError: a task failed.
    """
    console = make_console(stderr=True)
    path = config_path(options.config)
    config = read_config(path)
    pick_device(config.device)
    if options.data is None:
        console.print("no folder of texts: taking the embedded corpus")
    texts = load_texts(options.data, cache_dir=options.jobs)
    trainings = plan_trainings(config, texts.corpus)
    BatchSource(texts.train, config.model.context, config.batch_size)  # refuses a short text
    tasks = _tasks(trainings, texts, config, options)
    if tasks:
        with make_reporter(tasks, console) as reporter:
            if options.workers == 0:
                is_finished = run_here(
                    tasks,
                    texts,
                    jobs=options.jobs,
                    reporter=reporter,
                    is_stopped=lambda: stop.is_requested,
                )
            else:
                place = Workplace(
                    jobs=options.jobs,
                    data=options.data,
                    corpus_sha256=texts.corpus.sha256,
                    debug=is_debugging(),
                )
                workers = options.workers or (num_usable_cores() if config.device == "cpu" else 1)
                pool = Pool(
                    place,
                    workers=workers,
                    reporter=reporter,
                    is_stopped=lambda: stop.is_requested,
                )
                is_finished = pool.run(tasks)
        if not is_finished:
            console.print(f"stopped; the same command goes on from here: {options.command}")
            return stop.exit_code
    results = make_results(
        config_name=path.stem,
        config=config,
        trainings=trainings,
        texts=texts,
        jobs=options.jobs,
        machine=this_machine(config.device),
        code=this_code(),
        date=datetime.fromtimestamp(SystemClock().now_s(), tz=UTC).isoformat(timespec="seconds"),
        command=options.command,
    )
    document = write_results(results, options.out)
    console.print(f"report: {options.out / REPORT_FILE}")
    if options.as_json:
        sys.stdout.write(document)
    return 0


def write_results(results: Results, folder: Path) -> str:
    """Write the three kinds of report; returns the JSON.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draw_plots(results, folder)
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be written ({exc.strerror})") from exc
    document = results.model_dump_json(indent=2) + "\n"
    write_atomically(folder / RESULTS_FILE, document)
    write_atomically(folder / REPORT_FILE, render_report(results))
    return document


def _tasks(
    trainings: list[Training], texts: Texts, config: QualityConfig, options: QualityOptions
) -> list[Task]:
    chosen = trainings
    if options.is_report_only:
        chosen = [training for training in trainings if training.is_done(options.jobs)]
    return open_tasks(chosen, texts, curve_bytes=config.curve_bytes, jobs=options.jobs)
