"""A newcomer as a real process: weights first, then a part in the average."""

from __future__ import annotations

import json
import subprocess

import pytest

from node.snapshot import NodeSnapshot, read_snapshot
from tests.e2e.conftest import Programs, node_of, wait_until, write_tiny_manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TIMEOUT_S = 60.0


def join(programs: Programs, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a volunteer of block 0."""
    return programs.start(
        "node", "join", "--state-dir", str(programs.folder / name), "--host", "127.0.0.1",
        "--threads", "1", "--block", "0", *arguments, log=f"{name}.log",
    )  # fmt: skip


def has_averaged(programs: Programs, name: str) -> NodeSnapshot | None:
    """The node, once it has been part of an average."""
    snapshot = read_snapshot(programs.folder / name)
    return snapshot if snapshot is not None and snapshot.rounds_averaged else None


def test_a_newcomer_takes_the_weights_before_it_averages(programs: Programs) -> None:
    """From the founder; how long it took is in its status."""
    write_tiny_manifest(programs.folder / "manifest.json")
    join(programs, "founder", "--manifest", "manifest.json")
    founder = programs.folder / "founder"
    wait_until(
        lambda: (found := read_snapshot(founder)) is not None and found.round_index,
        deadline_s=TIMEOUT_S,
        what="the founder ends a round",
    )
    address = node_of(founder).addresses[0]
    join(programs, "newcomer", "--initial-peers", address)
    wait_until(
        lambda: has_averaged(programs, "newcomer"),
        deadline_s=TIMEOUT_S,
        what="the newcomer averages",
    )
    text = programs.text("newcomer.log")
    assert "took round" in text.split("averaged with")[0]
    state = str(programs.folder / "newcomer")
    status = programs.run("node", "status", "--json", "--state-dir", state)
    node = json.loads(status.stdout)["node"]
    assert 0 < node["first_average_s"] < TIMEOUT_S
    assert ("", 0) == (node["sync"], node["sync_done_bytes"])
