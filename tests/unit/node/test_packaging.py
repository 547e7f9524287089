"""Files that package the programs name what is there."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
NOT_IN_NAV = {"results/replicas/outer/sim.md", "results/replicas/overlap/sim.md"}
"""Linked from another page."""


def option_names(program: str, arguments: list[str]) -> set[str]:
    """What the program, or the command that the first argument names, understands."""
    if program == "bt-node":
        from node.cli import app

        command = typer.main.get_command(app).commands[arguments[0]]
    else:
        from bootstrap.cli import app

        command = typer.main.get_command(app)
    return {name for parameter in command.params for name in parameter.opts}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_start_programs_with_options_they_have(path) -> None:
    """And do not start them again after an error that stays."""
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str
    unit.read(path)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    used = {name for name in arguments if name.startswith("--")}
    assert used <= option_names(Path(program).name, arguments)
    assert path.stem == Path(program).name
    assert "2" == unit["Service"]["RestartPreventExitStatus"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_understands_the_units(path: Path, tmp_path: Path) -> None:
    """Every line of them; the program, which is not installed here, stands in for itself."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    here = tmp_path / path.name
    here.write_text(path.read_text().replace("/opt/bt-p2p/bin/", "/bin/echo "))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(here)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stdout + done.stderr)


def test_the_image_copies_what_is_there() -> None:
    """All packages that the wheel holds are among it."""
    lines = (ROOT / "packaging" / "docker" / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert {"bt_p2p", "node", "bootstrap"} <= set(copied)
    assert [] == [name for name in copied if not (ROOT / name).exists()]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert [] == [name for name in copied if f"!{name}" not in allowed]


def test_every_page_can_be_reached() -> None:
    """A page that is not in the navigation is found by nobody."""

    def pages(entry) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        values = entry.values() if isinstance(entry, dict) else entry
        return [page for value in values for page in pages(value)]

    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert there - NOT_IN_NAV == set(listed)
    assert len(set(listed)) == len(listed)
