"""The command line. Importing it, and `--help`, do not load torch."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.quality.cli import DEFAULT_DATA, ROOT
from bt_p2p.errors import ConfigError
from node.command_line import run_app
from node.log_setup import set_up_logging

app = typer.Typer(
    help="Measure what replicas of a block gain and cost.",
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with wiki_train.txt, wiki_valid.txt and wiki_test.txt. Not given: "
        "../shared/data beside the repository, or the embedded corpus if that is not there."
    ),
]
OutOption = Annotated[
    Path, typer.Option(help="Folder of the report.", show_default="docs/results/replicas")
]
JobsOption = Annotated[
    Path, typer.Option(help="Folder of unfinished work.", show_default=".benchmarks/replicas")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Log everything; show tracebacks.")]
DEFAULT_OUT = ROOT / "docs" / "results" / "replicas"
DEFAULT_JOBS = ROOT / ".benchmarks" / "replicas"
DEFAULT_CONFIG = Path(__file__).with_name("sim.toml")


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "replicas")


@app.command()
def sim(
    config: Annotated[
        Path, typer.Option(help="A TOML file.", show_default="sim.toml")
    ] = DEFAULT_CONFIG,
    data: DataOption = None,
    out: OutOption = DEFAULT_OUT,
    jobs: JobsOption = DEFAULT_JOBS,
    debug: DebugOption = False,
) -> int:
    """Train replicas in one process; a finished scenario is not run again."""
    from benchmarks.replicas.sim import run_sim  # noqa: PLC0415
    from node.stop import StopRequest  # noqa: PLC0415

    set_up_logging(is_debugging=debug)
    stop = StopRequest()
    stop.listen()
    return run_sim(config, _folder(data), out=out, jobs=jobs, command=_command(), stop=stop)


@app.command()
def swarm(
    seconds: Annotated[int, typer.Option(min=10, help="Training time.")] = 300,
    data: DataOption = None,
    out: OutOption = DEFAULT_OUT,
    jobs: JobsOption = DEFAULT_JOBS,
    debug: DebugOption = False,
) -> int:
    """Train real peers: 3 blocks x 1 twice at a time, then 3 blocks x 2."""
    from benchmarks.replicas.swarm import run_swarm  # noqa: PLC0415

    set_up_logging(is_debugging=debug)
    return run_swarm(seconds, _folder(data), out=out, jobs=jobs, command=_command())


def _folder(data: Path | None) -> Path | None:
    if data is not None and not data.is_dir():
        raise ConfigError(f"there is no folder {data}; leave --data out for the embedded corpus")
    return DEFAULT_DATA if data is None and DEFAULT_DATA.is_dir() else data


def _command() -> str:
    return f"python -m benchmarks.replicas {shlex.join(sys.argv[1:])}"
