"""A node obeys its user while it runs, and after a restart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from node.control.client import ask_node
from node.control.messages import Request
from node.manners.wishes import read_wishes
from node.snapshot import read_snapshot
from tests.e2e.conftest import (
    END_TIMEOUT_S,
    Programs,
    node_of,
    wait_until,
    write_tiny_manifest,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

JOIN_TIMEOUT_S = 60.0
ROUND_S = 3.0


def join(programs: Programs, name: str, *arguments: str, state: str) -> subprocess.Popen[bytes]:
    """Start a volunteer and wait for a state."""
    process = programs.start(
        "node", "join", "--state-dir", name, "--host", "127.0.0.1", "--threads", "1",
        "--on-battery", "train", *arguments, log=f"{name}.log",
    )  # fmt: skip
    wait_until(
        lambda: process.poll() is not None or is_in(programs.folder / name, process.pid, state),
        deadline_s=JOIN_TIMEOUT_S,
        what=f"{name} is {state}",
    )
    assert process.poll() is None, programs.text(f"{name}.log")
    return process


def is_in(folder: Path, pid: int, state: str) -> bool:
    """Whether this very process says that it is in a state."""
    snapshot = read_snapshot(folder)
    return snapshot is not None and (pid, state) == (snapshot.pid, snapshot.state)


def test_pause_resume_and_finish_of_one_replica_of_two(programs: Programs) -> None:
    """One story: it pauses, is killed, is still paused, catches up, averages, leaves."""
    model = {"num_blocks": 1, "layers_per_block": 1, "d_model": 32, "num_heads": 2, "context": 64}
    write_tiny_manifest(programs.folder / "manifest.json", model=model, rounds={"round_s": ROUND_S})
    polite, other = programs.folder / "polite", programs.folder / "other"
    join(programs, "other", "--manifest", "manifest.json", state="training")
    address = node_of(other).addresses[0]
    peer = ("--initial-peers", address)
    process = join(programs, "polite", *peer, state="training")
    wait_until(
        lambda: node_of(polite).rounds_averaged, deadline_s=30, what="they average with each other"
    )

    # paused: no step, no average; the other does not wait for it
    answer = ask_node(polite, Request(op="pause"))
    assert ("user", 0) == (answer.pause_reason, answer.block)
    wait_until(lambda: "paused" == node_of(polite).state, deadline_s=10, what="it pauses")
    steps = node_of(polite).steps
    rounds = node_of(other).rounds_alone
    wait_until(
        lambda: (
            node_of(other).rounds_alone >= rounds + 2 and "alone" == node_of(other).last_outcome
        ),
        deadline_s=30,
        what="the other goes on alone",
    )
    assert (steps, "user") == (node_of(polite).steps, node_of(polite).pause_reason)

    # still paused after kill -9
    process.kill()
    process.wait(END_TIMEOUT_S)
    process = join(programs, "polite", *peer, state="paused")
    assert "user" == node_of(polite).pause_reason

    # back: first the weights of the other, then averages
    resumed = programs.run("node", "resume", "--state-dir", "polite")
    assert (0, " trains\n") == (resumed.returncode, resumed.stdout[-8:])
    wait_until(lambda: node_of(polite).rounds_averaged, deadline_s=30, what="they average again")
    log = programs.text("polite.log").rpartition("goes on training")[2]
    assert "took round" in log

    # it leaves after its round, and a node that is started later does not leave at once
    assert ask_node(polite, Request(op="finish")).is_finishing
    assert 0 == process.wait(END_TIMEOUT_S + 2 * ROUND_S)
    assert "leaving, as you asked" in programs.text("polite.log")
    assert not read_wishes(polite).is_finishing
    assert not (polite / "control.sock").exists()

    # the last holder is snoozed, and serves
    assert "snoozed" == ask_node(other, Request(op="snooze", duration_s=3600.0)).pause_reason
    wait_until(lambda: "paused" == node_of(other).state, deadline_s=10, what="it is snoozed")
    text = programs.run("node", "generate", "The ", "-n", "3", "--json", *peer)
    assert 3 == json.loads(text.stdout)["new_bytes"], text.stderr
