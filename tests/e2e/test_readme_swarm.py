"""Who knows the README alone starts a private swarm on three machines, by pasting what it prints.

The machines are network namespaces at one switch. Each has a home of its own, and `bt-node` and
`bt-bootstrap` in its PATH, as after `. .venv/bin/activate`. Lines are typed as they stand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from node.snapshot import read_snapshot
from tests.e2e.conftest import Programs, wait_until
from tests.e2e.namespaces import Host, local_network

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

README = Path(__file__).parents[2] / "README.md"
START_TIMEOUT_S = 60.0
TRAIN_TIMEOUT_S = 120.0


@dataclass(kw_only=True)
class Machine:
    """A host with a home folder, and somebody who types."""

    host: Host
    programs: Programs
    typed: list[str] = field(default_factory=list)

    def run(self, line: str) -> str:
        """Type a line and wait for its end; what it printed."""
        done = self.programs.run_command("bash", "-c", line, namespace=self.host.namespace)
        self.typed += [f"$ {line}", done.stderr + done.stdout]
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def start(self, line: str, *, log: str) -> None:
        """Type a line and leave it running."""
        self.programs.start_command("bash", "-c", line, log=log, namespace=self.host.namespace)
        self.typed += [f"$ {line}   <- goes on; what it prints is in {log}"]

    def is_training(self) -> bool:
        """Whether its node trains its block."""
        node = read_snapshot(self.programs.folder / "state" / "bt-node")
        return node is not None and node.state == "training"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    """Three, with the programs installed."""
    with local_network(3) as hosts:
        found = []
        for index, host in enumerate(hosts, start=1):
            home = tmp_path / f"machine{index}"
            home.mkdir()
            programs = Programs(home)
            path = f"{Path(sys.executable).parent}:{programs.environment['PATH']}"
            programs.environment["PATH"] = path
            found.append(Machine(host=host, programs=programs))
        try:
            yield found
        finally:
            for machine in found:
                machine.programs.end()
            _write_transcript(tmp_path / "transcript.txt", found)


def _write_transcript(path: Path, machines: list[Machine]) -> None:
    lines = []
    for machine in machines:
        lines += [f"=== {machine.programs.folder.name}, {machine.host.address}", *machine.typed]
        for log in sorted(machine.programs.folder.glob("*.out")):
            lines += [f"--- {log.name}", log.read_text(encoding="utf-8", errors="replace")]
    path.write_text("\n".join(lines), encoding="utf-8")


def lines_of(section: str) -> list[str]:
    """The lines to type in a section of the README."""
    text = README.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^    (bt-.*)$", text, flags=re.MULTILINE)


def test_three_machines_make_a_swarm_by_pasting(machines: list[Machine]) -> None:
    """Each block trains, and one of the machines shows the swarm and generates text with it."""
    found_a_run, bootstrap, example = lines_of("Found a run")
    first = machines[0]
    first.run(found_a_run)
    first.start(bootstrap, log="bootstrap.out")
    wait_until(
        lambda: first.host.address in first.programs.text("bootstrap.out"),
        deadline_s=START_TIMEOUT_S,
        what="the bootstrap peer prints what to paste",
    )
    to_paste = next(
        line
        for line in first.programs.text("bootstrap.out").splitlines()
        if line.startswith("bt-node join")
    )
    assert example.split("story-")[0] == to_paste.split("story-")[0]
    for machine in machines:
        machine.start(to_paste, log="join.out")
    wait_until(
        lambda: all(machine.is_training() for machine in machines),
        deadline_s=TRAIN_TIMEOUT_S,
        what="every node trains",
    )

    use = lines_of("Use the model")
    shown = machines[2].run(next(line for line in use if "status" in line))
    assert ", 3/3 blocks training" in shown
    prompt = "The return value of "
    text = machines[2].run(next(line for line in use if f'generate "{prompt}"' in line))
    assert text.startswith(prompt)
    assert len(prompt) < len(text.strip())
