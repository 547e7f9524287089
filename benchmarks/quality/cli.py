"""The command line. Importing it, and `--help`, do not load torch."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from bt_p2p.errors import ConfigError
from node.command_line import run_app

ROOT = Path(__file__).parents[2]
DEFAULT_DATA = ROOT.parent / "shared" / "data"
DEFAULT_OUT = ROOT / "docs" / "results" / "quality"
DEFAULT_JOBS = ROOT / ".benchmarks" / "quality"
PROGRAM = "python -m benchmarks.quality"

app = typer.Typer(
    help="Train blocks alone and the same model end to end, and compare their cross entropy.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "quality")


@app.command()
def _main(
    config: Annotated[
        str, typer.Option(help="cpu, gpu or quick, or a TOML file.", metavar="NAME|FILE")
    ] = "cpu",
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with wiki_train.txt, wiki_valid.txt, wiki_test.txt and "
            "wikitext103_test.txt. Not given: ../shared/data beside the repository, or the "
            "embedded corpus if that is not there."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the report.", show_default="docs/results/quality")
    ] = DEFAULT_OUT,
    jobs: Annotated[
        Path,
        typer.Option(
            help="Folder of weights and scores, where a stopped run goes on.",
            show_default=".benchmarks/quality",
        ),
    ] = DEFAULT_JOBS,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Trainings at a time; the cores of this machine, or 1 on a GPU, if not given. "
            "0 runs everything in one process.",
        ),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Train nothing; report what is finished.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results on stdout as well.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log everything; show tracebacks.")
    ] = False,
) -> int:
    """Train what is not trained yet, score it and write the report."""
    from benchmarks.quality.run import QualityOptions, run_benchmark
    from node.log_setup import set_up_logging
    from node.stop import StopRequest

    set_up_logging(is_debugging=debug)
    if data is not None and not data.is_dir():
        raise ConfigError(f"there is no folder {data}; leave --data out for the embedded corpus")
    if data is None and DEFAULT_DATA.is_dir():
        data = DEFAULT_DATA
    stop = StopRequest()
    stop.listen()
    return run_benchmark(
        QualityOptions(
            config=config,
            data=data,
            out=out,
            jobs=jobs,
            workers=workers,
            is_report_only=report_only,
            as_json=as_json,
            command=f"{PROGRAM} {shlex.join(sys.argv[1:])}".strip(),
        ),
        stop,
    )
