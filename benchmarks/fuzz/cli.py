"""The command line. Importing it, and `--help`, do not load torch."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.quality.cli import ROOT
from bt_p2p.errors import ConfigError
from node.command_line import run_app

DEFAULT_OUT = ROOT / "docs" / "results" / "fuzz"
ENGINES = ("auto", "atheris", "own")

app = typer.Typer(
    help="Give malformed bytes to everything that reads a stranger's.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "fuzz")


@app.command()
def _main(
    inputs: Annotated[int, typer.Option(min=1, help="Of all decoders together.")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the changes.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(help="Name of a decoder; all if not given.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="auto, atheris or own; auto takes atheris if it is installed.")
    ] = "auto",
    out: Annotated[
        Path, typer.Option(help="Folder of the report.", show_default="docs/results/fuzz")
    ] = DEFAULT_OUT,
    debug: Annotated[bool, typer.Option("--debug", help="Log and trace everything.")] = False,
) -> int:
    """Feed all decoders and write the report. The exit code is 1 if anything was found."""
    from benchmarks.fuzz.run import Options, has_atheris, run_benchmark  # noqa: PLC0415
    from node.log_setup import set_up_logging  # noqa: PLC0415
    from node.stop import StopRequest  # noqa: PLC0415

    if engine not in ENGINES:
        raise ConfigError(f"engine {engine!r} is not one of: {', '.join(ENGINES)}")
    set_up_logging(is_debugging=debug)
    stop = StopRequest()
    stop.listen()
    options = Options(
        num_inputs=inputs,
        seed=seed,
        only=tuple(only or ()),
        is_guided=engine == "atheris" or (engine == "auto" and has_atheris()),
        out=out,
        command=f"python -m benchmarks.fuzz {shlex.join(sys.argv[1:])}".strip(),
    )
    return run_benchmark(options, stop)
