"""`bt-node doctor` as people run it: numbered findings, a fix for each, and the exit code."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import shlex
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.membership import issue_membership, token_of
from bt_p2p.testing.tiny import tiny_identity
from node.state_dir import NodeLock, StateDir
from tests.e2e.conftest import Programs, wait_until, write_tiny_manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STRANGER = "12D3KooWCtcgQySagj3N4MLdcC1hYb8M7DjjkfTC6qwJmeYH91Gp"
QUICK_CPU_S = 5.0
"""What the quick part may take, with loading torch."""
PLANTED = [
    ("a malformed address", "peers", "address-malformed"),
    ("an announced address that nobody can dial", "peers", "announce-useless"),
    ("a port that refuses", "peers", "peer-refused"),
    ("a host that never answers", "peers", "peer-timed-out"),
    ("an unknown host name", "peers", "peer-unknown-host"),
    ("an address with another peer's id", "peers", "peer-is-another"),
    ("another program than a peer", "peers", "peer-is-no-peer"),
    ("a clock that is a minute ahead", "swarm", "clock-wrong"),
    ("a run that the swarm does not have", "swarm", "run-unclear"),
    ("an address at which nobody can dial back", "swarm", "not-reachable"),
    ("a state folder that cannot be made", "machine", "state-folder-unwritable"),
    ("a port that another program uses", "machine", "port-not-free"),
    ("a low limit of open files", "machine", "few-open-files"),
    ("a device that is not there", "machine", "device-missing"),
    ("a manifest of another run", "machine", "manifest-unusable"),
    ("a state folder that another node uses", "folder", "state-folder-in-use"),
    ("a damaged key", "folder", "identity-unusable"),
    ("a name to listen on", "folder", "host-malformed"),
    ("a block over the memory limit", "folder", "memory-short"),
    ("a disk on which no checkpoint fits", "folder", "disk-short"),
    ("a span that is none", "folder", "span-malformed"),
    ("a file of the run token that is not there", "folder", "run-token-unreadable"),
    ("a key that others may read", "wishes", "identity-not-private"),
    ("a span behind the run's last block", "wishes", "block-unknown"),
    ("another text than the run's", "wishes", "text-unusable"),
    ("a token for another peer", "wishes", "run-token-unfit"),
]
"""What is wrong, in which examination, and the code of the finding that has to name it."""
SKEWED = (
    "import time; now = time.time; time.time = lambda: now() + 60; "
    "from node.__main__ import main; main()"
)


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


class Examinations:
    """Each examination, with all its problems planted, is made once, when a test needs it."""

    def __init__(self, programs: Programs, entry: str) -> None:
        self.programs = programs
        self.entry = entry
        self.found: dict[str, tuple[int, list[dict[str, str]]]] = {}

    def __getitem__(self, name: str) -> tuple[int, list[dict[str, str]]]:
        """Exit code and findings."""
        if name not in self.found:
            self.found[name] = getattr(self, name)()
        return self.found[name]

    def examine(self, *words: str, options: tuple[str, ...]) -> tuple[int, list[dict[str, str]]]:
        """Run a command line of Python's with options of the doctor."""
        done = self.programs.run_command(*words, *options, "--json", timeout_s=150)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)["findings"]

    def peers(self) -> tuple[int, list[dict[str, str]]]:
        """No address leads to a peer."""
        with full() as silent_port, other_program() as other_port:
            addresses = [
                "localhost:31337",
                f"{self.entry.rpartition('/')[0]}/{STRANGER}",
                *(
                    f"/{host}/tcp/{port}/p2p/{STRANGER}"
                    for host, port in (
                        ("ip4/127.0.0.1", 1),
                        ("dns4/nope.invalid", 1),
                        ("ip4/127.0.0.1", silent_port),
                        ("ip4/127.0.0.1", other_port),
                    )
                ),
            ]
            return self.examine(
                sys.executable, "-m", "node", "doctor",
                options=(
                    "--initial-peers", ",".join(addresses), "--state-dir", "doctor",
                    "--announce", "/ip4/0.0.0.0/tcp/31337",
                ),
            )  # fmt: skip

    def swarm(self) -> tuple[int, list[dict[str, str]]]:
        """A swarm is there, and this machine does not fit it."""
        return self.examine(
            sys.executable, "-c", SKEWED, "doctor",
            options=(
                "--initial-peers", self.entry, "--state-dir", "doctor", "--run", "nowhere",
                "--host", "127.0.0.1", "--announce", "/ip4/127.0.0.1/tcp/1",
            ),
        )  # fmt: skip

    def machine(self) -> tuple[int, list[dict[str, str]]]:
        """Much is wrong with the machine; nothing of it needs the network."""
        with listening() as taken:
            line = shlex.join([
                sys.executable, "-m", "node", "doctor", "--quick", "--json",
                "--state-dir", "manifest.json/state", "--device", "cuda:99",
                "--host", "127.0.0.1", "--port", str(taken.getsockname()[1]),
                "--manifest", "manifest.json", "--run", "another",
            ])  # fmt: skip
            return self.examine("bash", "-c", f"ulimit -n 256; exec {line}", options=())

    def folder(self) -> tuple[int, list[dict[str, str]]]:
        """The state folder is another node's, and the run far too large."""
        state = StateDir(self.programs.folder / "used")
        state.create()
        state.identity_path.write_bytes(b"not a key")
        model = {"d_model": 16384, "num_heads": 128, "layers_per_block": 64}
        large = RunManifest.build({"name": "large", "model": model})
        (self.programs.folder / "large.json").write_bytes(large.canonical_bytes())
        with NodeLock(state):
            return self.examine(
                sys.executable, "-m", "node", "doctor", "--quick",
                options=(
                    "--state-dir", "used", "--manifest", "large.json", "--host", "localhost",
                    "--span", "all", "--run-token-file", "nowhere.txt",
                ),
            )  # fmt: skip

    def wishes(self) -> tuple[int, list[dict[str, str]]]:
        """A closed run with a text of its own, and nothing of what the user gives fits it."""
        folder, (owner, member, other) = self.programs.folder, map(tiny_identity, range(3))
        manifest = write_tiny_manifest(
            folder / "closed.json",
            owner=owner.peer_id,
            corpus={"kind": "text", "name": "books", "size_bytes": 9, "sha256": "0" * 64},
        )
        (folder / "books.txt").write_text("other books")
        member.save(folder / "open.key")
        (folder / "open.key").chmod(0o644)
        token = issue_membership(
            owner, run_id=manifest.run_id, peer_id=other.peer_id, expires_at_s=2**40
        )
        return self.examine(
            sys.executable, "-m", "node", "doctor", "--quick",
            options=(
                "--state-dir", "wishes", "--manifest", "closed.json", "--data", "books.txt",
                "--span", "1:9", "--identity", "open.key", "--run-token", token_of(token),
            ),
        )  # fmt: skip


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """A port at which nobody accepts connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        yield listener


@contextlib.contextmanager
def full() -> Iterator[int]:
    """A port with no room for more connections that wait, so that the system drops them."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(listening()).getsockname()
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(address)
        yield address[1]


class Greeting(socketserver.BaseRequestHandler):
    """Speaks first, as SSH does."""

    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-other\r\n")


@contextlib.contextmanager
def other_program() -> Iterator[int]:
    """The port of a program that is no peer."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeting) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def examinations(programs: Programs, entry: str) -> Examinations:
    """All of them."""
    return Examinations(programs, entry)


@pytest.mark.parametrize(
    ("examination", "code"),
    [pytest.param(*planted[1:], id=planted[0]) for planted in PLANTED],
)
def test_a_planted_problem_is_found_and_named(
    examinations: Examinations, examination: str, code: str
) -> None:
    """With its value and a fix."""
    exit_code, findings = examinations[examination]

    found = [each for each in findings if each["code"] == code]
    assert 1 == len(found), findings
    assert found[0]["severity"] in {"warning", "problem"}
    assert found[0]["text"]
    assert found[0]["fix"]
    assert 0 != exit_code


def test_the_documentation_marks_what_is_planted() -> None:
    """So that its readers know which findings are proven."""
    page = Path(__file__).parents[2] / "docs" / "doctor.md"
    marked = re.findall(r"^\| `([a-z-]+)` \| • \|", page.read_text("utf-8"), flags=re.MULTILINE)
    assert sorted(code for _, _, code in PLANTED) == sorted(marked)


def test_malformed_options_are_usage_errors(examinations: Examinations) -> None:
    """As for `join`, though the rest is looked at, too."""
    assert 2 == examinations["peers"][0]
    assert 1 == examinations["swarm"][0]


def test_the_quick_part_is_quick(programs: Programs) -> None:
    """By the clock of the processor, which does not count what else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = programs.run("node", "doctor", "--quick", "--state-dir", "quick")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert 0 == done.returncode, done.stdout
    assert "peers: " not in done.stdout
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert cpu_s < QUICK_CPU_S


def test_without_a_peer_the_machine_itself_is_examined(programs: Programs) -> None:
    """And the plan is that of the default run."""
    code, out = doctor(programs)

    assert 0 == code
    assert "note     peers: no peer is named" in out
    assert "ok       memory: " in out
    assert "ok       plan: " in out
