"""A swarm of a cascade: blocks train on copies of those before them, and go on without them."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from node.snapshot import read_snapshot
from tests.e2e.conftest import Programs, node_of, wait_until, write_tiny_manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

JOIN_TIMEOUT_S = 60.0
PROMPT = "The return value "


def join(programs: Programs, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a volunteer of a cascade."""
    return programs.start(
        "node", "join", "--state-dir", str(programs.folder / name), "--host", "127.0.0.1",
        "--threads", "1", *arguments, log=f"{name}.log",
    )  # fmt: skip


def trains(programs: Programs, name: str) -> bool:
    """Whether a volunteer has finished a round."""
    snapshot = read_snapshot(programs.folder / name)
    return snapshot is not None and snapshot.round_index > 0


def generated(programs: Programs, address: str, mode: str) -> dict:
    """One answer in a mode."""
    done = programs.run(
        "node", "generate", PROMPT, "--initial-peers", address, "--mode", mode, "-n", "40",
        "--temperature", "0", "--json",
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def test_a_cascade_trains_answers_and_outlives_its_first_block(programs: Programs) -> None:
    """Block 1 fetches block 0, both are traversed in order, and block 1 trains on when 0 is gone."""
    write_tiny_manifest(
        programs.folder / "manifest.json",
        objective={"name": "cascade", "upstream_refresh_rounds": 1},
    )
    first = join(programs, "first", "--manifest", "manifest.json", "--block", "0")
    wait_until(lambda: trains(programs, "first"), deadline_s=JOIN_TIMEOUT_S, what="block 0 trains")
    address = node_of(programs.folder / "first").addresses[0]
    join(programs, "second", "--initial-peers", address, "--block", "1")
    line = "training on a copy of block 0"
    wait_until(lambda: line in programs.text("second.log"), deadline_s=JOIN_TIMEOUT_S, what=line)

    plain = generated(programs, address, "ar")
    assert 40 == plain["traversals"] == plain["new_bytes"]
    assert [[0, 1]] * 40 == [[hop["block"] for hop in hops] for hops in plain["hops"]]
    drafted = generated(programs, address, "draft")
    assert 40 == drafted["new_bytes"] >= 2 * drafted["traversals"]

    second_address = node_of(programs.folder / "second").addresses[0]
    first.send_signal(signal.SIGKILL)
    first.wait(5)
    round_index = node_of(programs.folder / "second").round_index
    wait_until(
        lambda: node_of(programs.folder / "second").round_index >= round_index + 2,
        deadline_s=30,
        what="block 1 goes on without block 0",
    )
    scored = programs.run(
        "node", "generate", PROMPT, "--initial-peers", second_address, "--wait", "0"
    )
    assert 1 == scored.returncode
    assert "block 0" in scored.stderr
