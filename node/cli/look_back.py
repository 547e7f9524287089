"""Commands that look back: a past run, and what this computer has given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.app import app
from node.cli.options import Debug, Json, State, state_path


@app.command()
def replay(
    file: Annotated[
        Path,
        typer.Argument(
            help="Event log: events.jsonl of a state folder, one moved aside, or the folder for all of them."
        ),
    ],
    speed: Annotated[
        float, typer.Option(help="Seconds of the run in one second of the replay.")
    ] = 10.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Print the end of it and end; it is so where there is no terminal."
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Show a past run in the dashboard, from the log of its events. Ctrl-C ends it."""
    from node.commands.replay import replay as replay_file

    return replay_file(file, speed=speed, once=once, as_json=as_json, debug=debug)


@app.command()
def stats(as_json: Json = False, state_dir: State = None, debug: Debug = False) -> int:
    """Show what this computer has given to each run, and how its joins went."""
    from node.commands.stats import show_stats

    return show_stats(as_json=as_json, state_path=state_path(state_dir), debug=debug)
