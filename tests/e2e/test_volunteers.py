"""Volunteers as real processes: join, be seen, serve, leave, come back."""

from __future__ import annotations

import json
import math
import signal
import subprocess

import psutil
import pytest

from bt_p2p.protocol.manifest import RunManifest
from node.events.history import read_history
from node.snapshot import read_snapshot
from tests.e2e.conftest import (
    END_TIMEOUT_S,
    Programs,
    descendants,
    node_of,
    wait_until,
    write_tiny_manifest,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

JOIN_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def manifest(programs: Programs) -> RunManifest:
    """Two small blocks; a text to score."""
    (programs.folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 50)
    return write_tiny_manifest(programs.folder / "manifest.json")


def join(programs: Programs, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a volunteer and wait until it trains."""
    state = programs.folder / name
    process = programs.start(
        "node", "join", "--state-dir", str(state), "--host", "127.0.0.1", "--threads", "1",
        *arguments, log=f"{name}.log",
    )  # fmt: skip

    def is_training() -> bool:
        assert process.poll() is None, programs.text(f"{name}.log")
        snapshot = read_snapshot(state)
        return snapshot is not None and snapshot.state in {"training", "averaging"}

    wait_until(is_training, deadline_s=JOIN_TIMEOUT_S, what=f"{name} trains")
    return process


def leave(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """Send a signal; returns the exit code once all children are gone too."""
    children = descendants(process.pid)
    process.send_signal(number)
    code = process.wait(END_TIMEOUT_S)
    _, alive = psutil.wait_procs(children, timeout=END_TIMEOUT_S)
    assert [] == alive
    return code


def test_a_swarm_of_two_is_seen_generates_and_is_scored(
    programs: Programs, manifest: RunManifest
) -> None:
    """One story: alone, a missing block, a second volunteer, text, scores, a restart."""
    first = join(programs, "first", "--manifest", "manifest.json", "--block", "0")
    address = node_of(programs.folder / "first").addresses[0]
    assert "others join with: bt-node join --run" in programs.text("first.log")

    # a block without a holder is named, with the command that would serve it
    done = programs.run("node", "generate", "hello", "--initial-peers", address)
    assert (1, "") == (done.returncode, done.stdout)
    assert "no live node holds block 1 of 2" in done.stderr
    assert f"bt-node join --run {manifest.run_id} --block 1" in done.stderr

    # the second one leaves the choice to the swarm, and gets the manifest from it
    second = join(programs, "second", "--initial-peers", address)
    assert 1 == node_of(programs.folder / "second").block
    assert "manifest fetched and verified" in programs.text("second.log")

    # status: JSON for machines, plain text without escapes for pipes
    seen = programs.run("node", "status", "--json", "--state-dir", str(programs.folder / "first"))
    document = json.loads(seen.stdout)
    assert (manifest.run_id, 2, []) == (
        document["run_id"], document["peers"], document["uncovered"],
    )  # fmt: skip
    assert node_of(programs.folder / "first").peer_id == document["node"]["peer_id"]
    plain = programs.run("node", "status", "--initial-peers", address)
    assert 0 == plain.returncode
    assert "\x1b" not in plain.stdout
    assert manifest.run_id in plain.stdout

    # text through both, byte by byte and in chunks; the same seed gives the same text
    answers = [
        json.loads(
            programs.run(
                "node", "generate", "The ", "--initial-peers", address, "--json",
                "-n", "40", "--mode", mode, "--temperature", "0",
            ).stdout
        )
        for mode in ("ar", "sweep")
    ]  # fmt: skip
    assert [(40, 40), (40, 2)] == [(a["new_bytes"], a["traversals"]) for a in answers]
    assert 2 == len(answers[0]["holders"])

    # the honest score of an untrained-like model is near uniform, never below zero
    scored = programs.run("node", "eval", "text.txt", "--initial-peers", address, "--json")
    score = json.loads(scored.stdout)
    assert 45 * 50 - 1 == score["bytes_scored"]
    assert 0.1 < score["nats_per_byte"] < math.log(256) + 0.1
    assert 2 == len(score["nats_per_byte_by_block"])

    # both blocks in a folder, which answers without the swarm
    exported = programs.run(
        "node", "export", "--out", "model", "--initial-peers", address, "--json"
    )
    assert 0 == exported.returncode, exported.stderr
    assert manifest.run_id == json.loads(exported.stdout)["run_id"]
    assert (programs.folder / "model" / "loss-curve.png").exists(), exported.stdout
    local = programs.run(
        "node", "generate", "The ", "--local", "model", "--json", "-n", "5", "--mode", "draft"
    )
    assert 5 == json.loads(local.stdout)["new_bytes"]
    scored = programs.run("node", "eval", "text.txt", "--local", "model", "--json")
    assert 2 == len(json.loads(scored.stdout)["nats_per_byte_by_block"])

    # a clean exit is withdrawn at once, and a restart goes on where it was
    assert 143 == leave(second, signal.SIGTERM)
    after = json.loads(programs.run("node", "status", "--json", "--initial-peers", address).stdout)
    assert [1] == after["uncovered"]
    round_index = node_of_file(programs, "second")["round_index"]
    again = join(programs, "second", "--initial-peers", address)
    assert "resumed from round" in programs.text("second.log")
    assert round_index <= node_of(programs.folder / "second").round_index
    assert 129 == leave(again, signal.SIGHUP)
    assert 130 == leave(first, signal.SIGINT)

    # what happened can be replayed, and what was given is kept over restarts
    state = programs.folder / "second"
    replayed = json.loads(
        programs.run("node", "replay", str(state / "events.jsonl"), "--json").stdout
    )
    assert ({}, manifest.run_id) == (replayed["skipped"], replayed["status"]["run_id"])
    assert replayed["status"]["node"] is None  # it had stopped
    stats = json.loads(programs.run("node", "stats", "--json", "--state-dir", str(state)).stdout)
    given = stats["runs"][manifest.run_id]
    assert (2, 2, 2) == (stats["joins_tried"], stats["joins_trained"], given["num_starts"])
    kinds = [event.kind for event in read_history(state / "events.jsonl").events]
    assert (2, 2, 2) == tuple(map(kinds.count, ("started", "block_chosen", "stopped")))
    assert given["rounds"] == kinds.count("round_finished")
    assert "peer_joined" in kinds


def test_kill_9_leaves_no_child_and_the_state_stays_usable(
    programs: Programs, manifest: RunManifest
) -> None:
    """Children notice that their parent is gone; the same folder joins again at once."""
    state = programs.folder / "killed"
    killed = join(programs, "killed", "--manifest", "manifest.json", "--max-rounds", "50")
    peer_id = node_of(state).peer_id
    children = descendants(killed.pid)
    killed.kill()
    killed.wait(END_TIMEOUT_S)
    _, alive = psutil.wait_procs(children, timeout=END_TIMEOUT_S)
    assert [] == alive

    again = join(programs, "killed", "--manifest", "manifest.json")

    assert peer_id == node_of(state).peer_id
    assert 143 == leave(again, signal.SIGTERM)


def test_a_second_node_on_the_same_state_folder_is_refused(
    programs: Programs, manifest: RunManifest
) -> None:
    """The process that holds the folder is named."""
    one = join(programs, "shared", "--manifest", "manifest.json")

    done = programs.run(
        "node", "join", "--manifest", "manifest.json", "--host", "127.0.0.1",
        "--state-dir", str(programs.folder / "shared"),
    )  # fmt: skip

    assert 2 == done.returncode
    assert f"process {one.pid}" in done.stderr
    assert 143 == leave(one, signal.SIGTERM)


def node_of_file(programs: Programs, name: str) -> dict[str, object]:
    """The last snapshot of a node that may have ended."""
    text = (programs.folder / name / "node.json").read_text(encoding="utf-8")
    document: dict[str, object] = json.loads(text)
    return document
