"""What importing the package and asking for help cost, and what every module must have."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bt_p2p

ROOT = Path(__file__).parents[2]
PACKAGES = ("bt_p2p", "node", "bootstrap")
HEAVY = {"torch", "hivemind"}
HELP_CPU_LIMIT_S = 0.5


def imported_by(*arguments: str) -> set[str]:
    """Top-level modules that a fresh Python imports when run with these arguments."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def help_cpu_s() -> float:
    """CPU seconds of one `bt-node --help`, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "node", "--help"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=30,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_import_of_the_package_is_light():
    """`import bt_p2p` imports neither torch nor hivemind."""
    imported = imported_by("-c", "import bt_p2p")
    assert "bt_p2p" in imported
    assert set() == imported & HEAVY


@pytest.mark.slow
def test_help_is_light():
    """`bt-node --help` imports neither torch nor hivemind."""
    imported = imported_by("-m", "node", "--help")
    assert "node" in imported
    assert set() == imported & HEAVY


@pytest.mark.slow
def test_help_answers_at_once():
    """`bt-node --help` takes less than half a second of CPU time; best of three."""
    assert min(help_cpu_s() for _ in range(3)) < HELP_CPU_LIMIT_S


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_docstring(package):
    """Each module says in a docstring what it is for."""
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths, f"no modules in {package}"
    missing = [
        path.relative_to(ROOT).as_posix()
        for path in paths
        if not ast.get_docstring(ast.parse(path.read_bytes()))
    ]
    assert [] == missing


def test_version_is_the_same_in_both_places():
    """The version in pyproject.toml is the package's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == bt_p2p.__version__
