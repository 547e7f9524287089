"""What holds for every test: one thread, fixed seeds, a clean environment, nothing left behind.

torch is never imported here: a run of tests that do not need it stays fast.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read once, when torch is imported; children inherit it
os.environ["MKL_NUM_THREADS"] = "1"

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

SEED = 20260624
TIERS = ("unit", "fuzz", "contract", "numerics", "swarm", "e2e")
"""Folders of tests, cheapest first."""
PYTHON_HELPERS = ("torch_shm_manager", "multiprocessing.resource_tracker")
"""Children that torch and Python keep for the life of the process, and end themselves."""
STOP_TIMEOUT_S = 5.0

hypothesis.settings.register_profile("bt_p2p", deadline=None)  # machines are shared
hypothesis.settings.load_profile("bt_p2p")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cheap tests first; inside a folder the random order stays."""
    root = Path(__file__).parent

    def tier(item: pytest.Item) -> int:
        parts = item.path.relative_to(root).parts if item.path.is_relative_to(root) else ()
        return TIERS.index(parts[0]) if parts and parts[0] in TIERS else len(TIERS)

    items.sort(key=tier)


@pytest.fixture(scope="session", autouse=True)
def no_leftover_children() -> Iterator[None]:
    """Whoever starts a process ends it: the run fails if one outlives the tests.

    The last test to run gets the error, whichever one left the process.
    """
    yield
    children = [
        child for child in psutil.Process().children(recursive=True) if not _is_helper(child)
    ]
    _, alive = psutil.wait_procs(children, timeout=STOP_TIMEOUT_S)
    commands = [_command_line(child) for child in alive]
    for child in alive:
        child.kill()
    assert [] == commands


def _is_helper(process: psutil.Process) -> bool:
    return any(helper in _command_line(process) for helper in PYTHON_HELPERS)


def _command_line(process: psutil.Process) -> str:
    """The command line of a process; empty if it ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.fixture(scope="session", autouse=True)
def no_hivemind_in_quick_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """A run without tests of real peers must not import hivemind, which costs seconds and forks."""
    yield
    imported = "hivemind" in sys.modules
    for item in request.session.items:
        if item.get_closest_marker("swarm") or item.get_closest_marker("e2e"):
            return
    assert not imported, (
        "hivemind was imported in a run without swarm or e2e tests; find out where with "
        "python -X importtime -m pytest, and import adapters inside fixtures or functions"
    )


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """The settings of whoever runs the tests do not reach them, nor the processes they start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("BT_NODE_", "BT_BOOTSTRAP_")) or name in {
                "NO_COLOR",
                "FORCE_COLOR",
            }:
                patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_event_loop_by_chance() -> None:
    """`asyncio.get_event_loop`, which hivemind calls, makes no loop that nobody closes."""
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Every test starts from the same seeds and one thread, where the libraries are loaded."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(SEED)
        sys.modules["torch"].set_num_threads(1)
