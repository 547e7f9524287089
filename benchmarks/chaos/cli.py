"""The command line. Importing it, and `--help`, do not load torch."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.quality.cli import ROOT
from node.command_line import run_app
from node.log_setup import set_up_logging

if TYPE_CHECKING:
    from benchmarks.replicas.report import SetUp

app = typer.Typer(
    help="Disturb a swarm of real nodes, and see what it makes of it.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
OutOption = Annotated[
    Path, typer.Option(help="Folder of the report.", show_default="docs/results/chaos")
]
JobsOption = Annotated[
    Path,
    typer.Option(help="Folder for state and output.", show_default=".benchmarks/chaos"),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Log everything; show tracebacks.")]
DEFAULT_OUT = ROOT / "docs" / "results" / "chaos"
DEFAULT_JOBS = ROOT / ".benchmarks" / "chaos"


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "chaos")


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    config: Annotated[
        str, typer.Option(help="quick or full, or a TOML file.", metavar="NAME|FILE")
    ] = "quick",
    out: OutOption = DEFAULT_OUT,
    jobs: JobsOption = DEFAULT_JOBS,
    debug: DebugOption = False,
) -> int:
    """A fault every few seconds, with an undisturbed twin; exit code 1 if a target is missed."""
    if context.invoked_subcommand is not None:
        return 0
    from benchmarks.chaos.config import read_config  # noqa: PLC0415
    from benchmarks.chaos.run import Options, run_chaos  # noqa: PLC0415

    _prepare(debug)
    return run_chaos(
        Options(
            config=read_config(config),
            name=Path(config).stem,
            out=out,
            jobs=jobs,
            set_up=_set_up(),
        )
    )


@app.command()
def exits(
    runs: Annotated[int, typer.Option(min=1, help="Nodes to end, one cell after another.")] = 60,
    out: OutOption = DEFAULT_OUT,
    jobs: JobsOption = DEFAULT_JOBS,
    debug: DebugOption = False,
) -> int:
    """End nodes by every signal at every moment; exit code 1 if anything is left behind."""
    from benchmarks.chaos.exits import run_exits  # noqa: PLC0415

    _prepare(debug)
    return run_exits(runs, out=out, jobs=jobs, set_up=_set_up())


def _prepare(is_debugging: bool) -> None:
    set_up_logging(is_debugging=is_debugging)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)


def _set_up() -> SetUp:
    from benchmarks.chaos.report import make_set_up  # noqa: PLC0415

    return make_set_up(f"python -m benchmarks.chaos {shlex.join(sys.argv[1:])}".strip())


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
