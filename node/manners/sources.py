"""Where settings come from: flags over environment over file over default, and which it was.

pydantic-settings reads the same places, but does not tell where a value is from, which is half of what
`bt-node config` is for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bt_p2p.errors import ConfigError
from node.manners.settings import Settings

PREFIX = "BT_NODE_"
CONFIG_NAME = "config.toml"
_SECTION = "manners"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sourced:
    """Settings, and the origin of each in words: flag, environment variable, file or default."""

    settings: Settings
    origins: Mapping[str, str]


def flag_name(name: str) -> str:
    """The option that sets a field."""
    return "--" + name.replace("_", "-")


def variable_name(name: str) -> str:
    """The environment variable that sets a field."""
    return PREFIX + name.upper()


def read_settings(
    *, flags: Mapping[str, object], environment: Mapping[str, str], path: Path, is_named: bool
) -> Sourced:
    """Settings from all places.

    Args:
        flags: by field; None where a flag was not given.
        environment: of the process; empty variables count as not set.
        path: the TOML file.
        is_named: the user has named it, so it has to exist.

    Raises:
        ConfigError: the file cannot be read, has an unknown field, or a value is wrong; says where.
    """
    values: dict[str, object] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for name, value in _read_file(path, is_named=is_named).items():
        values[name], origins[name] = value, f"file {path}"
    for name in Settings.model_fields:
        text = environment.get(variable_name(name), "").strip()
        if text:
            values[name], origins[name] = text, f"environment {variable_name(name)}"
        flag = flags.get(name)
        if flag is not None:
            values[name], origins[name] = flag, f"flag {flag_name(name)}"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as exc:
        error = exc.errors()[0]
        name = str(error["loc"][0])
        raise ConfigError(
            f"{name} is {values.get(name)!r:.80} ({origins[name]}): "
            f"{error['msg'].removeprefix('Value error, ')}; see bt-node config"
        ) from exc
    return Sourced(settings=settings, origins=origins)


def _read_file(path: Path, *, is_named: bool) -> dict[str, Any]:
    """The fields of the file's one section; none if there is no file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as exc:
        if is_named:
            raise ConfigError(f"config {path} does not exist; check --config") from exc
        return {}
    except OSError as exc:
        raise ConfigError(f"config {path} cannot be read ({exc.strerror})") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"config {path} is not valid TOML: {exc}") from exc
    section = document.pop(_SECTION, {})
    if document or not isinstance(section, dict):
        what = next(iter(document), _SECTION)
        raise ConfigError(
            f"config {path} has {what!r:.80} outside of [{_SECTION}]; put all values into that section"
        )
    unknown = [name for name in section if name not in Settings.model_fields]
    if unknown:
        raise ConfigError(
            f"config {path} has unknown field {unknown[0]!r:.80}; known are: "
            f"{', '.join(Settings.model_fields)}"
        )
    return section
