"""The command line. Importing it, and `--help`, do not load torch."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.quality.cli import DEFAULT_DATA, DEFAULT_JOBS, ROOT
from bt_p2p.errors import ConfigError
from node.command_line import run_app
from node.log_setup import set_up_logging

if TYPE_CHECKING:
    from benchmarks.chain.run import Options

app = typer.Typer(
    help="Time generation over a chain of real holders, and disturb it.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ConfigOption = Annotated[
    str, typer.Option(help="quick or full, or a TOML file.", metavar="NAME|FILE")
]
DataOption = Annotated[
    Path | None,
    typer.Option(help="As for benchmarks.quality: ../shared/data or the embedded corpus."),
]
TrainedOption = Annotated[
    Path,
    typer.Option(
        help="The --jobs folder of benchmarks.quality, for trained weights where there are any.",
        show_default=".benchmarks/quality",
    ),
]
OutOption = Annotated[
    Path, typer.Option(help="Folder of the report.", show_default="docs/results/chain")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Log everything; show tracebacks.")]
DEFAULT_OUT = ROOT / "docs" / "results" / "chain"


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "chain")


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    config: ConfigOption = "quick",
    data: DataOption = None,
    trained: TrainedOption = DEFAULT_JOBS,
    out: OutOption = DEFAULT_OUT,
    debug: DebugOption = False,
) -> int:
    """Time answers over several links and write the report."""
    if context.invoked_subcommand is not None:
        return 0
    from benchmarks.chain.run import run_chain  # noqa: PLC0415
    from benchmarks.chain.swarm import chain_swarm  # noqa: PLC0415

    return run_chain(_options(config, data, trained, out, is_debugging=debug), chain_swarm)


@app.command()
def faults(
    config: ConfigOption = "quick",
    data: DataOption = None,
    out: OutOption = DEFAULT_OUT,
    debug: DebugOption = False,
) -> int:
    """Kill and freeze holders in the middle of answers; exit code 1 if any answer differs."""
    from benchmarks.chain.run import run_faults  # noqa: PLC0415
    from benchmarks.chain.swarm import chain_swarm  # noqa: PLC0415

    options = _options(config, data, DEFAULT_JOBS, out, is_debugging=debug)
    return run_faults(options, chain_swarm)


def _options(
    config: str, data: Path | None, trained: Path, out: Path, *, is_debugging: bool
) -> Options:
    from benchmarks.chain.run import Options  # noqa: PLC0415

    set_up_logging(is_debugging=is_debugging)
    if data is not None and not data.is_dir():
        raise ConfigError(f"there is no folder {data}; leave --data out for the embedded corpus")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    return Options(
        config=config,
        data=data or (DEFAULT_DATA if DEFAULT_DATA.is_dir() else None),
        trained=trained,
        out=out,
        command=f"python -m benchmarks.chain {shlex.join(sys.argv[1:])}".strip(),
    )


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
