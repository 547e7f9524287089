"""Parts of running programs are killed or frozen: each program becomes whole by itself."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from node.snapshot import NodeSnapshot, read_snapshot
from tests.e2e.conftest import (
    END_TIMEOUT_S,
    Programs,
    descendants,
    node_of,
    wait_until,
    write_tiny_manifest,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WATCHFUL = str(Path(__file__).with_name("watchful.py"))
START_TIMEOUT_S = 60.0
REBUILD_TIMEOUT_S = 90.0


class Parts:
    """The processes of one program, by what they are."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        (self.daemon,) = (part for part in descendants(process.pid) if part.name() == "p2pd")
        self.dht = self.daemon.parent()
        self.averager = next(
            (part for part in psutil.Process(process.pid).children() if part != self.dht), None
        )
        self.all = descendants(process.pid)


def volunteer(programs: Programs, name: str, address: str) -> subprocess.Popen[bytes]:
    """Start one on the only block; any free port."""
    return programs.start_script(
        WATCHFUL, "node", "join", "--state-dir", str(programs.folder / name), "--host", "127.0.0.1",
        "--threads", "1", "--initial-peers", address, log=f"{name}.log",
    )  # fmt: skip


def printed(programs: Programs, log: str, pattern: str) -> Callable[[], list[str]]:
    """What a program has printed so far that fits."""
    return lambda: re.findall(pattern, programs.text(log), re.M)


def last(programs: Programs, log: str, pattern: str) -> str:
    """The last thing a program printed that fits, once there is one."""
    wait_until(printed(programs, log, pattern), deadline_s=START_TIMEOUT_S, what=pattern)
    return printed(programs, log, pattern)()[-1]


def has_averaged(programs: Programs, name: str, *, rebuilds: int) -> bool:
    """Whether a volunteer has averaged since its last rebuild."""
    found: NodeSnapshot | None = read_snapshot(programs.folder / name)
    return found is not None and found.rebuilds == rebuilds and found.rounds_averaged > 0


def answers(url: str, run_id: str) -> bool:
    """Whether a server completes a text."""
    body = json.dumps({"model": run_id, "prompt": "The ", "max_tokens": 2})
    request = urllib.request.Request(f"{url}/completions", body.encode())
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_programs_become_whole_again(programs: Programs) -> None:
    """One swarm; every kind of broken part; the same process ids, identities and ports at its end."""
    manifest = write_tiny_manifest(
        programs.folder / "manifest.json",
        model={
            "num_blocks": 1, "layers_per_block": 1, "d_model": 32, "num_heads": 2, "context": 64,
        },
        rounds={"round_s": 4},
    )  # fmt: skip
    bootstrap = programs.start_script(
        WATCHFUL, "bootstrap", "--manifest", "manifest.json", "--host", "127.0.0.1", "--port", "0",
        "--state-dir", str(programs.folder / "bootstrap"), log="bootstrap.log",
    )  # fmt: skip
    address = last(programs, "bootstrap.log", r"--initial-peers (\S+)")
    nodes = {name: volunteer(programs, name, address) for name in ("one", "two")}
    server = programs.start_script(
        WATCHFUL, "node", "serve", "--initial-peers", address, "--port", "0", log="serve.log"
    )
    wait_until(
        lambda: all(has_averaged(programs, name, rebuilds=0) for name in nodes),
        deadline_s=START_TIMEOUT_S,
        what="two volunteers average",
    )
    url = last(programs, "serve.log", r"on (http://\S+/v1)$")
    before = {name: node_of(programs.folder / name) for name in nodes}

    # nobody is left whom the others could enter through: each starts alone and dials
    parts = [Parts(nodes["one"]), Parts(nodes["two"]), Parts(bootstrap)]
    parts[0].dht.kill()
    parts[1].daemon.kill()
    parts[2].dht.send_signal(signal.SIGSTOP)
    wait_until(
        lambda: all(has_averaged(programs, name, rebuilds=1) for name in nodes),
        deadline_s=REBUILD_TIMEOUT_S,
        what="both average again",
    )
    # and now the other parts
    parts += [Parts(nodes["one"]), Parts(nodes["two"]), Parts(server)]
    parts[3].averager.kill()
    parts[4].dht.send_signal(signal.SIGSTOP)
    parts[5].daemon.kill()
    wait_until(
        lambda: all(has_averaged(programs, name, rebuilds=2) for name in nodes),
        deadline_s=REBUILD_TIMEOUT_S,
        what="both average again",
    )
    wait_until(
        lambda: answers(url, manifest.run_id), deadline_s=START_TIMEOUT_S, what="the server answers"
    )

    for name in nodes:
        after = node_of(programs.folder / name)
        assert before[name].pid == after.pid == nodes[name].pid
        assert before[name].peer_id == after.peer_id
        assert before[name].addresses == after.addresses
        assert manifest.run_id == after.run_id
        assert 2 == len(re.findall(r": this node is rebuilt in ", programs.text(f"{name}.log")))
    assert address == last(programs, "bootstrap.log", r"--initial-peers (\S+)")
    old = [process for found in parts for process in found.all]
    assert [] == psutil.wait_procs(old, timeout=END_TIMEOUT_S)[1]

    # ended in order, they leave nothing behind
    running = [*nodes.values(), server, bootstrap]
    children = [child for process in running for child in descendants(process.pid)]
    for process in running:
        process.send_signal(signal.SIGTERM)
    assert [143] * 4 == [process.wait(END_TIMEOUT_S) for process in running]
    assert [] == psutil.wait_procs(children, timeout=END_TIMEOUT_S)[1]


def test_ctrl_c_ends_a_node_that_waits_to_be_rebuilt(programs: Programs) -> None:
    """At once, and with the exit code of Ctrl-C; after too many rebuilds the node gives up."""
    write_tiny_manifest(programs.folder / "manifest.json")
    left = '{"reason": "the test says so", "num_in_a_row": %d, "num_total": 9, "delay_s": %d, "kept": {}}'
    programs.environment["BT_NODE_REBUILD"] = left % (8, 600)
    waiting = programs.start_script(
        WATCHFUL, "node", "join", "--state-dir", str(programs.folder / "waiting"),
        log="waiting.log",
    )  # fmt: skip
    programs.environment["BT_NODE_REBUILD"] = left % (8, 0)
    worn_out = programs.start_script(
        WATCHFUL, "bootstrap", "--manifest", "manifest.json", "--host", "127.0.0.1", "--port", "0",
        "--state-dir", str(programs.folder / "worn-out"), log="worn-out.log",
    )  # fmt: skip
    del programs.environment["BT_NODE_REBUILD"]
    last(programs, "worn-out.log", r"--initial-peers (\S+)")

    Parts(worn_out).dht.kill()
    assert 1 == worn_out.wait(REBUILD_TIMEOUT_S)
    assert "gave up after 8 rebuilds in a row: " in programs.text("worn-out.log")

    assert waiting.poll() is None
    waiting.send_signal(signal.SIGINT)
    assert 130 == waiting.wait(END_TIMEOUT_S)
