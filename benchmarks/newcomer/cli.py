"""The command line. Importing it, and `--help`, do not load torch."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from benchmarks.quality.cli import ROOT
from node.command_line import run_app
from node.log_setup import set_up_logging

app = typer.Typer(
    help="Time newcomers from `join` to their first average, over several links.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
DEFAULT_OUT = ROOT / "docs" / "results" / "newcomer"


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "newcomer")


@app.command()
def _main(
    repeats: Annotated[int, typer.Option(min=1, help="Newcomers over each link.")] = 5,
    donors: Annotated[int, typer.Option(min=1, max=8, help="Replicas that are there.")] = 2,
    round_s: Annotated[float, typer.Option(min=4, help="Seconds between averages.")] = 30.0,
    out: Annotated[
        Path, typer.Option(help="Folder of the report.", show_default="docs/results/newcomer")
    ] = DEFAULT_OUT,
    debug: Annotated[bool, typer.Option("--debug", help="Log everything.")] = False,
) -> int:
    """On loopback, and behind links of 20 Mbit/s."""
    from benchmarks.newcomer.report import make_set_up, write_report  # noqa: PLC0415
    from benchmarks.newcomer.swarm import measure_links  # noqa: PLC0415

    set_up_logging(is_debugging=debug)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    command = f"python -m benchmarks.newcomer {shlex.join(sys.argv[1:])}".strip()
    set_up = make_set_up(command)
    measured = measure_links(repeats=repeats, num_donors=donors, round_s=round_s)
    write_report(out, set_up, measured, num_donors=donors, round_s=round_s)
    return 0


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
