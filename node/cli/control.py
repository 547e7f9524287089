"""Commands for the node that runs here, and what it may take of the machine."""

from __future__ import annotations

from typing import Annotated

import typer

from node.cli.app import app
from node.cli.options import (
    Config,
    Hours,
    IdleAfter,
    IdleLoad,
    IdleOnly,
    Json,
    MemoryCap,
    Nice,
    OnBattery,
    State,
    Threads,
    UploadPerDay,
    UploadPerSecond,
    given,
    state_path,
)


@app.command()
def pause(as_json: Json = False, state_dir: State = None) -> None:
    """Stop training until resume; the block is still served to others. A restart does not end it."""
    from node.commands.control import command_node

    command_node("pause", state_path=state_path(state_dir), as_json=as_json)


@app.command()
def resume(as_json: Json = False, state_dir: State = None) -> None:
    """Take back pause, snooze and finish."""
    from node.commands.control import command_node

    command_node("resume", state_path=state_path(state_dir), as_json=as_json)


@app.command()
def finish(as_json: Json = False, state_dir: State = None) -> None:
    """Leave after this round."""
    from node.commands.control import command_node

    command_node("finish", state_path=state_path(state_dir), as_json=as_json)


@app.command()
def snooze(
    duration: Annotated[str, typer.Argument(help="How long: 2h, 90m or 1h30m.")],
    as_json: Json = False,
    state_dir: State = None,
) -> None:
    """Stop training for some time; the block is still served to others."""
    from node.commands.control import command_node

    command_node("snooze", state_path=state_path(state_dir), as_json=as_json, duration=duration)


@app.command("config")
def show_config(
    context: typer.Context,
    config: Config = None,
    hours: Hours = None,
    idle_only: IdleOnly = None,
    idle_load: IdleLoad = None,
    idle_after_s: IdleAfter = None,
    on_battery: OnBattery = None,
    threads: Threads = None,
    nice: Nice = None,
    upload_bytes_per_s: UploadPerSecond = None,
    upload_bytes_per_day: UploadPerDay = None,
    memory_bytes: MemoryCap = None,
    as_json: Json = False,
    state_dir: State = None,
) -> None:
    """Print each setting of join with these options, and where it is from."""
    from node.commands.config import show_config as show

    flags = {
        "hours": hours,
        "idle_only": idle_only,
        "idle_load": idle_load,
        "idle_after_s": idle_after_s,
        "on_battery": on_battery,
        "threads": threads,
        "nice": nice,
        "upload_bytes_per_s": upload_bytes_per_s,
        "upload_bytes_per_day": upload_bytes_per_day,
        "memory_bytes": memory_bytes,
    }
    show(
        flags=given(context, flags),
        config=config,
        state_path=state_path(state_dir),
        as_json=as_json,
    )
