"""`bt-node doctor` as people run it: numbered findings, a fix for each, and the exit code."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Programs, wait_until, write_tiny_manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STRANGER = "12D3KooWCtcgQySagj3N4MLdcC1hYb8M7DjjkfTC6qwJmeYH91Gp"


@pytest.fixture(scope="module")
def entry(programs: Programs) -> str:
    """The address of a bootstrap peer that holds a run."""
    write_tiny_manifest(programs.folder / "manifest.json")
    programs.start(
        "bootstrap", "--host", "127.0.0.1", "--port", "0", "--manifest", "manifest.json",
        log="bootstrap.log",
    )  # fmt: skip
    wait_until(
        lambda: "--initial-peers" in programs.text("bootstrap.log"), deadline_s=60, what="bootstrap"
    )
    line = next(
        line for line in programs.text("bootstrap.log").splitlines() if "--initial-peers" in line
    )
    assert line.endswith("# this machine only")
    return line.split("--initial-peers ")[1].split()[0]


def doctor(programs: Programs, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output."""
    done = programs.run("node", "doctor", *arguments, "--state-dir", "doctor", timeout_s=150)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def test_a_healthy_machine_gets_a_plan(programs: Programs, entry: str) -> None:
    """A dead address beside a good one is a warning, and all the rest is measured."""
    dead = f"/ip4/127.0.0.1/tcp/1/p2p/{STRANGER}"
    code, out = doctor(
        programs, "--initial-peers", f"{entry},{dead}", "--host", "127.0.0.1", "--json"
    )

    document = json.loads(out)
    found = {(each["check"], each["severity"]) for each in document["findings"]}
    texts = {each["check"]: each["text"] for each in document["findings"]}
    assert (0, "warning") == (code, document["worst"])
    assert {("peers", "ok"), ("peers", "warning"), ("reachability", "ok"), ("plan", "ok")} <= found
    assert "problem" not in {severity for _, severity in found}
    assert "reachable: yes, at /ip4/127.0.0.1/tcp/" in texts["reachability"]
    assert "MB/s" in texts["link"]
    assert (0, 2, 8) == tuple(
        document["plan"][key] for key in ("block", "num_blocks", "batch_size")
    )
    assert 0 <= document["plan"]["averaging_share"] < 1


def test_peers_that_cannot_be_joined_are_problems_with_their_own_reasons(
    programs: Programs, entry: str
) -> None:
    """A closed port, an unknown host and another peer id; each has a fix."""
    wrong = f"{entry.rpartition('/')[0]}/{STRANGER}"
    dead = f"/ip4/127.0.0.1/tcp/1/p2p/{STRANGER},/dns4/nope.invalid/tcp/1/p2p/{STRANGER}"
    code, out = doctor(programs, "--initial-peers", f"{wrong},{dead}")

    lines = out.splitlines()
    problems = [index for index, line in enumerate(lines) if ". problem  peers: " in line]
    assert (1, 3) == (code, len(problems))
    reasons = ["another peer answers there", "refused", "no such host"]
    for index, reason in zip(problems, reasons, strict=True):
        assert reason in lines[index]
        assert lines[index + 1].strip().startswith("fix: ")
    assert "3 problems: join would fail" in lines[-1]


def test_without_a_peer_the_machine_itself_is_examined(programs: Programs) -> None:
    """And the plan is that of the default run."""
    code, out = doctor(programs)

    assert 0 == code
    assert "note     peers: no peer is named" in out
    assert "ok       memory: " in out
    assert "ok       plan: " in out


def test_malformed_options_are_usage_errors(programs: Programs) -> None:
    """As for `join`."""
    done = programs.run("node", "doctor", "--announce", "/ip4/0.0.0.0/tcp/31337")

    assert (2, "") == (done.returncode, done.stdout)
    assert "'0.0.0.0' can be listened on, but not dialled" in done.stderr
