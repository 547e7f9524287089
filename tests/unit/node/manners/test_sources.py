"""Flags over environment over file over default, and which of them it was."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bt_p2p.errors import ConfigError
from node.cli import app
from node.commands.config import config_text
from node.manners.settings import Settings
from node.manners.sources import Sourced, read_settings


def read(folder: Path, text: str = "", *, environment=None, **flags: object) -> Sourced:
    """Settings with a file of this text."""
    path = folder / "config.toml"
    if text:
        path.write_text(text)
    return read_settings(flags=flags, environment=environment or {}, path=path, is_named=bool(text))


def test_each_place_wins_over_those_below_it(tmp_path):
    """One field from each place."""
    text = '[manners]\nnice = 1\nthreads = 1\nhours = "22:00-07:00"\n'
    environment = {"BT_NODE_NICE": "2", "BT_NODE_THREADS": "2", "BT_NODE_IDLE_LOAD": ""}
    found = read(tmp_path, text, environment=environment, nice=3, idle_only=None)
    settings = found.settings
    assert (3, 2, "22:00-07:00", 0.2) == (
        settings.nice,
        settings.threads,
        settings.hours,
        settings.idle_load,
    )
    assert {
        "nice": "flag --nice",
        "threads": "environment BT_NODE_THREADS",
        "hours": f"file {tmp_path / 'config.toml'}",
        "idle_load": "default",
    }.items() <= found.origins.items()


def test_a_flag_that_switches_off_wins_too(tmp_path):
    """False is given, None is not."""
    found = read(tmp_path, "[manners]\nidle_only = true\n", idle_only=False)
    assert found.settings.idle_only is False


@pytest.mark.parametrize(
    ("text", "environment", "flags", "words"),
    [
        ("[manners]\nnice = 20\n", {}, {}, "nice is 20 (file "),
        ("", {"BT_NODE_HOURS": "late"}, {}, "hours is 'late' (environment BT_NODE_HOURS)"),
        ("", {}, {"upload_bytes_per_s": "fast"}, "(flag --upload-bytes-per-s)"),
        ("[manners]\nnicely = 1\n", {}, {}, "unknown field 'nicely'"),
        ("nice = 1\n", {}, {}, "'nice' outside of [manners]"),
        ("manners = 1\n", {}, {}, "outside of [manners]"),
        ("[manners\n", {}, {}, "is not valid TOML"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(tmp_path, text, environment, flags, words):
    """Somebody has to find it."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, environment=environment, **flags)
    assert words in str(caught.value)


def test_a_file_that_was_named_has_to_exist(tmp_path):
    """The default one need not."""
    assert read(tmp_path).settings == Settings()
    with pytest.raises(ConfigError, match="does not exist"):
        read_settings(flags={}, environment={}, path=tmp_path / "none", is_named=True)


def test_a_file_where_the_state_folder_should_be_is_no_config(tmp_path):
    """Whoever makes the folder says what is wrong with it."""
    (tmp_path / "state").touch()
    path = tmp_path / "state" / "config.toml"
    found = read_settings(flags={}, environment={}, path=path, is_named=False)
    assert Settings() == found.settings


def test_config_prints_a_file_that_would_set_the_same(tmp_path):
    """Values that are not set are comments in it."""
    found = read(tmp_path, nice=5, hours="22:00-07:00", upload_bytes_per_s="500 kB")
    written = tomllib.loads(config_text(found, tmp_path / "config.toml"))["manners"]
    assert {"nice": 5, "hours": "22:00-07:00", "upload_bytes_per_s": 500_000}.items() <= (
        written.items()
    )
    assert found.settings == Settings.model_validate(written)


def test_config_prints_values_and_origins_as_json(tmp_path, monkeypatch):
    """The command, with a flag and a variable."""
    monkeypatch.setenv("BT_NODE_THREADS", "3")
    result = CliRunner().invoke(
        app, ["config", "--state-dir", str(tmp_path), "--nice", "7", "--json"]
    )
    assert 0 == result.exit_code
    settings = json.loads(result.stdout)["settings"]
    assert set(Settings.model_fields) == set(settings)
    assert {"value": 7, "origin": "flag --nice"} == settings["nice"]
    assert {"value": 3, "origin": "environment BT_NODE_THREADS"} == settings["threads"]
