"""The command line. Importing it, and `--help`, do not load torch."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.quality.cli import DEFAULT_DATA, DEFAULT_JOBS, ROOT
from bt_p2p.errors import ConfigError
from node.command_line import run_app

DEFAULT_OUT = ROOT / "docs" / "results" / "traversals"

app = typer.Typer(
    help="Generate with one and with several bytes per traversal, and compare the quality.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "traversals")


@app.command()
def _main(
    config: Annotated[
        str, typer.Option(help="Of benchmarks.quality, which trained both.", metavar="NAME|FILE")
    ] = "cpu",
    model_arm: Annotated[str, typer.Option(help="Arm that generates.")] = "plain_sweep",
    judge_arm: Annotated[str, typer.Option(help="Arm that judges.")] = "end_to_end",
    budget: Annotated[
        str | None, typer.Option(help="Of both; the longest of each if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="That both were trained with.")] = 0,
    prefixes: Annotated[int, typer.Option(min=2, help="Prefixes of 64 bytes to continue.")] = 200,
    new_bytes: Annotated[int, typer.Option(min=2, help="Bytes to generate after each.")] = 64,
    data: Annotated[
        Path | None,
        typer.Option(help="As for benchmarks.quality: ../shared/data or the embedded corpus."),
    ] = None,
    work: Annotated[
        Path,
        typer.Option(
            help="The --jobs folder of benchmarks.quality.", show_default=".benchmarks/quality"
        ),
    ] = DEFAULT_JOBS,
    out: Annotated[
        Path, typer.Option(help="Folder of the report.", show_default="docs/results/traversals")
    ] = DEFAULT_OUT,
    debug: Annotated[bool, typer.Option("--debug", help="Log and trace everything.")] = False,
) -> int:
    """Generate what is not generated yet, judge it and write the report."""
    from benchmarks.traversals.run import Options, run_benchmark  # noqa: PLC0415
    from node.log_setup import set_up_logging  # noqa: PLC0415
    from node.stop import StopRequest  # noqa: PLC0415

    set_up_logging(is_debugging=debug)
    if data is not None and not data.is_dir():
        raise ConfigError(f"there is no folder {data}; leave --data out for the embedded corpus")
    stop = StopRequest()
    stop.listen()
    options = Options(
        config=config,
        arms=(model_arm, judge_arm),
        budget=budget,
        seed=seed,
        num_prefixes=prefixes,
        new_bytes=new_bytes,
        data=data or (DEFAULT_DATA if DEFAULT_DATA.is_dir() else None),
        work=work,
        out=out,
        command=f"python -m benchmarks.traversals {shlex.join(sys.argv[1:])}".strip(),
    )
    return run_benchmark(options, stop)
