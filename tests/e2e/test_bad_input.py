"""Bad input of any kind: one line that names it, the right exit code, and nothing left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bt_p2p.corpus.corpus import describe_text
from bt_p2p.protocol.manifest import RunManifest
from node.events.history import read_history
from node.receipts import read_receipts
from tests.e2e.conftest import Programs, write_tiny_manifest

pytestmark = pytest.mark.e2e

SHORT = b"only a few words"
PEER = "12D3KooWCtcgQySagj3N4MLdcC1hYb8M7DjjkfTC6qwJmeYH91Gp"


@pytest.fixture(scope="module")
def manifest(programs: Programs) -> RunManifest:
    """A valid manifest in manifest.json, and text files around it."""
    (programs.folder / "empty.txt").write_bytes(b"")
    (programs.folder / "short.txt").write_bytes(SHORT)
    (programs.folder / "bad.json").write_text('{"model": {"d_model": "wide"}}')
    damaged = programs.folder / "damaged.key"
    damaged.write_bytes(b"not a key")
    write_tiny_manifest(programs.folder / "text.json", corpus={"kind": "text", "name": "a text"})
    return write_tiny_manifest(programs.folder / "manifest.json")


def refuse(programs: Programs, *arguments: str) -> tuple[int, str]:
    """Exit code and error line of a `join` that must not start."""
    done = programs.run("node", "join", *arguments, "--host", "127.0.0.1")
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    assert "" == done.stdout
    assert "Traceback" not in done.stderr
    assert 1 == len(lines), done.stderr
    return done.returncode, lines[0]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("localhost:31337", "it needs the form"),
        (f"/ip4/300.0.0.1/tcp/1/p2p/{PEER}", "'300.0.0.1' is not an address"),
        (f"/ip4/127.0.0.1/tcp/99999/p2p/{PEER}", "port '99999' is not a number from 1 to 65535"),
        (f"/ip4/127.0.0.1/tcp/1/p2p/{PEER[:20]}", "is not a peer id, or it is cut short"),
    ],
)
def test_malformed_multiaddr_is_a_usage_error(
    programs: Programs, address: str, reason: str
) -> None:
    """The bad part is named, before anything is started."""
    code, line = refuse(programs, "--initial-peers", address)

    assert 2 == code
    assert reason in line
    assert "an example: /ip4/" in line


def test_unreachable_bootstrap_names_each_address_and_its_reason(
    programs: Programs, manifest: RunManifest
) -> None:
    """A closed port and an unknown host are told apart; the join counts as failed by this cause."""
    addresses = f"/ip4/127.0.0.1/tcp/1/p2p/{PEER},/dns4/nope.invalid/tcp/1/p2p/{PEER}"

    code, line = refuse(
        programs, "--manifest", "manifest.json", "--initial-peers", addresses, "--state-dir", "own"
    )

    assert 1 == code
    assert "/ip4/127.0.0.1/tcp/1" in line
    assert "refused" in line
    assert "no such host" in line
    receipts = read_receipts(programs.folder / "own")
    assert (1, 0, {"no-peer-answers": 1}) == (
        receipts.joins_tried, receipts.joins_trained, receipts.join_failures,
    )  # fmt: skip
    (event,) = read_history(programs.folder / "own" / "events.jsonl").events
    assert ("join_failed", "no-peer-answers") == (event.kind, event.cause)


def test_missing_data_file_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """The path is named."""
    code, line = refuse(programs, "--manifest", "text.json", "--data", "nowhere.txt")

    assert (2, True) == (code, "nowhere.txt" in line)


def test_empty_data_file_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """The path is named, and that it is empty."""
    code, line = refuse(programs, "--manifest", "text.json", "--data", "empty.txt")

    assert (2, True) == (code, "empty" in line)


def test_text_that_is_too_short_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """What there is and what is needed are named; nobody else is asked for anything."""
    spec = describe_text("text", "a short text", SHORT)
    write_tiny_manifest(programs.folder / "short.json", corpus=spec.model_dump())

    code, line = refuse(programs, "--manifest", "short.json", "--data", "short.txt")

    assert (2, True) == (code, "16 bytes" in line and "need at least" in line)


def test_a_state_folder_that_cannot_be_written_is_a_usage_error(
    programs: Programs, manifest: RunManifest
) -> None:
    """A file stands in its place; the folder and the way out are named."""
    code, line = refuse(programs, "--manifest", "manifest.json", "--state-dir", "empty.txt/state")

    assert 2 == code
    assert "state folder empty.txt/state cannot be written" in line
    assert "--state-dir" in line


def test_a_reader_that_ends_early_is_no_error(programs: Programs) -> None:
    """As `| head -1` does."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "node", "join", "--help"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=programs.environment,
            check=False,
        )

    assert "" == done.stderr
    assert done.returncode in {0, 1}  # typer's help ends with 1 then


def test_unknown_block_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """The valid range is named."""
    code, line = refuse(programs, "--manifest", "manifest.json", "--block", "7")

    assert (2, True) == (code, "choose from 0 to 1" in line)


def test_port_in_use_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """The port and a way out are named."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]

        code, line = refuse(programs, "--manifest", "manifest.json", "--port", str(port))

    assert 2 == code
    assert f"port {port} is in use" in line
    assert "--port 0" in line


def test_damaged_identity_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """The key file is named and left as it is."""
    code, line = refuse(programs, "--manifest", "manifest.json", "--identity", "damaged.key")

    assert (2, True) == (code, "damaged.key" in line)
    assert b"not a key" == (programs.folder / "damaged.key").read_bytes()


def test_unreadable_identity_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """A folder in place of the key file cannot be read by anybody."""
    (programs.folder / "folder.key").mkdir(exist_ok=True)

    code, line = refuse(programs, "--manifest", "manifest.json", "--identity", "folder.key")

    assert (2, True) == (code, "cannot be read" in line)


def test_manifest_of_another_id_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """Both ids are named."""
    wanted = f"tiny-{'a' * 26}"

    code, line = refuse(programs, "--manifest", "manifest.json", "--run", wanted)

    assert 2 == code
    assert "does not match its id" in line
    assert wanted in line
    assert manifest.run_id in line


def test_malformed_manifest_is_a_usage_error(programs: Programs, manifest: RunManifest) -> None:
    """The field and its value are named."""
    code, line = refuse(programs, "--manifest", "bad.json")

    assert (2, True) == (code, "model.d_model" in line and "'wide'" in line)


def test_nobody_to_ask_is_a_usage_error(programs: Programs, tmp_path: Path) -> None:
    """`status` without a node or a peer says what to name."""
    done = programs.run("node", "status", "--state-dir", str(tmp_path))

    assert (2, "") == (done.returncode, done.stdout)
    assert "--initial-peers" in done.stderr


def test_empty_prompt_is_a_usage_error(programs: Programs) -> None:
    """Nothing on stdin and no argument."""
    done = programs.run("node", "generate")

    assert (2, "") == (done.returncode, done.stdout)
    assert "the prompt is empty" in done.stderr


def test_refused_starts_leave_no_daemon(programs: Programs) -> None:
    """After all of the above no peer-to-peer daemon of ours is left."""
    left = [
        process.info["name"]
        for process in psutil.process_iter(["name", "environ"])
        if process.info["name"] == "p2pd"
        and (process.info["environ"] or {}).get("HOME") == str(programs.folder)
    ]

    assert [] == left


@pytest.mark.parametrize(
    "arguments", [("join", "--port", "99999"), ("join", "--nonsense"), ("nonsense",), ("eval",)]
)
def test_what_the_command_line_refuses_is_a_usage_error(
    programs: Programs, arguments: tuple[str, ...]
) -> None:
    """Not a fault of the program."""
    done = programs.run("node", *arguments)

    assert (2, "") == (done.returncode, done.stdout)
    assert "fault of the program" not in done.stderr
