"""Ends of nodes at awkward moments; `python -m benchmarks.chaos exits` has all of them."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.chaos.exits import Moment, end_node, start_place
from node.demo.processes import DemoSwarm

CELLS: list[tuple[Moment, signal.Signals]] = [
    ("save", signal.SIGHUP),
    ("average", signal.SIGKILL),
    ("bootstrap", signal.SIGTERM),
]


@pytest.mark.e2e
@pytest.mark.timeout(180)
def test_ended_nodes_leave_nothing_behind(tmp_path: Path) -> None:
    """No process, no port, no temporary file, no traceback; three nodes beside each other."""
    swarm = DemoSwarm(tmp_path)
    try:
        place = start_place(swarm, has_partner=False)
        with ThreadPoolExecutor(len(CELLS)) as pool:
            results = list(
                pool.map(
                    lambda cell: end_node(place, *cell, seed=CELLS.index(cell), within_s=60), CELLS
                )
            )
    finally:
        swarm.stop(timeout_s=20)
        num_left = swarm.kill_leftovers()

    assert [[], [], []] == [result.problems() for result in results]
    assert 0 == num_left
