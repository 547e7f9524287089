"""A peer that serves copies of other blocks keeps the model whole when their holders are gone."""

from __future__ import annotations

import signal
import subprocess

import pytest

from node.snapshot import read_snapshot
from tests.e2e.conftest import Programs, node_of, wait_until, write_tiny_manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

JOIN_TIMEOUT_S = 60.0


def join(programs: Programs, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a volunteer."""
    return programs.start(
        "node", "join", "--state-dir", str(programs.folder / name), "--host", "127.0.0.1",
        "--threads", "1", *arguments, log=f"{name}.log",
    )  # fmt: skip


def generate(programs: Programs, address: str) -> subprocess.CompletedProcess[str]:
    """A few bytes from the swarm; waits for no block."""
    return programs.run(
        "node", "generate", "The return value ", "--initial-peers", address, "--wait", "0",
        "-n", "8", "--json",
    )  # fmt: skip


def test_a_span_outlives_the_holders_of_its_copies(programs: Programs) -> None:
    """Block 1 is trained by another peer, which is killed; the copy answers."""
    write_tiny_manifest(programs.folder / "manifest.json")
    join(programs, "wide", "--manifest", "manifest.json", "--span", "0:2", "--block", "0")
    wait_until(
        lambda: (
            (found := read_snapshot(programs.folder / "wide")) is not None and found.round_index > 0
        ),
        deadline_s=JOIN_TIMEOUT_S,
        what="block 0 trains",
    )
    address = node_of(programs.folder / "wide").addresses[0]
    lonely = generate(programs, address)
    assert 1 == lonely.returncode
    assert "no live node holds block 1" in lonely.stderr
    other = join(programs, "other", "--initial-peers", address, "--block", "1")
    line = "serving a copy of block 1"
    wait_until(lambda: line in programs.text("wide.log"), deadline_s=JOIN_TIMEOUT_S, what=line)
    other.send_signal(signal.SIGKILL)
    other.wait(5)

    def answers() -> bool:
        """The copy is announced with the next lease."""
        return 0 == generate(programs, address).returncode

    wait_until(answers, deadline_s=40, what="the copy answers")
