"""`bt-node config`: every setting, its value, and where it is from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import typer

from node.manners.settings import Settings
from node.manners.sources import CONFIG_NAME, Sourced, read_settings


def sourced_settings(
    *, flags: Mapping[str, object], config: Path | None, state_path: Path
) -> Sourced:
    """Settings of a node with this state folder.

    Raises:
        ConfigError: one is wrong, or the file is.
    """
    return read_settings(
        flags=flags,
        environment=os.environ,
        path=config or state_path / CONFIG_NAME,
        is_named=config is not None,
    )


def show_config(
    *, flags: Mapping[str, object], config: Path | None, state_path: Path, as_json: bool
) -> None:
    """Print what `bt-node join` would go by.

    Raises:
        ConfigError: one is wrong, or the file is.
    """
    sourced = sourced_settings(flags=flags, config=config, state_path=state_path)
    path = config or state_path / CONFIG_NAME
    if as_json:
        values = sourced.settings.model_dump()
        fields = {
            name: {"value": value, "origin": sourced.origins[name]}
            for name, value in values.items()
        }
        typer.echo(json.dumps({"file": str(path), "settings": fields}))
    else:
        typer.echo(config_text(sourced, path))


def config_text(sourced: Sourced, path: Path) -> str:
    """The settings as a TOML file that would set them."""
    values = sourced.settings.model_dump()
    lines = {
        name: f"# {name} is not set" if value is None else f"{name} = {json.dumps(value)}"
        for name, value in values.items()
    }
    width = max(map(len, lines.values()))
    rows = [
        f"{line.ljust(width)}  # {sourced.origins[name]}: {Settings.model_fields[name].description}"
        for name, line in lines.items()
    ]
    return "\n".join([f"# {path}", "[manners]", *rows])
