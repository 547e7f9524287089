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
    help="Measure what hostile replicas do to a block, with and without protection.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
DEFAULT_OUT = ROOT / "docs" / "results" / "attacks"
DEFAULT_JOBS = ROOT / ".benchmarks" / "attacks"
CONFIGS = Path(__file__).parent


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "attacks")


@app.command()
def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="quick.toml: two minutes, to see that it works.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file.", show_default="full.toml")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with wiki_train.txt, wiki_valid.txt and wiki_test.txt. Not given: "
            "../shared/data beside the repository, or the embedded corpus if that is not there."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the report.", show_default="docs/results/attacks")
    ] = DEFAULT_OUT,
    jobs: Annotated[
        Path, typer.Option(help="Folder of unfinished work.", show_default=".benchmarks/attacks")
    ] = DEFAULT_JOBS,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log everything; show tracebacks.")
    ] = False,
) -> int:
    """Train replicas in one process, some hostile; a finished scenario is not run again."""
    from benchmarks.attacks.run import run_attacks  # noqa: PLC0415
    from node.stop import StopRequest  # noqa: PLC0415

    set_up_logging(is_debugging=debug)
    if quick and config is not None:
        raise ConfigError("--quick and --config exclude each other; give one of them")
    if data is not None and not data.is_dir():
        raise ConfigError(f"there is no folder {data}; leave --data out for the embedded corpus")
    folder = DEFAULT_DATA if data is None and DEFAULT_DATA.is_dir() else data
    stop = StopRequest()
    stop.listen()
    return run_attacks(
        config or CONFIGS / ("quick.toml" if quick else "full.toml"),
        folder,
        out=out,
        jobs=jobs,
        command=f"python -m benchmarks.attacks {shlex.join(sys.argv[1:])}".strip(),
        stop=stop,
    )
