"""Volunteers as the real programs: each behind its own link, and on a disk of its own if possible."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.chaos.config import ChaosConfig
from benchmarks.chaos.links import Link, LinkBoard
from benchmarks.chaos.plan import block_of
from benchmarks.ports import free_port, is_free
from node.demo.processes import DemoProcess, DemoSwarm, marked_environment
from node.snapshot import NodeSnapshot

_DISK_SIZE = "16m"
_TRAINING = {"training", "averaging"}
_LOW_PRIORITY = 19
"""Of the thread that trains, so that programs which start are not starved by those that run."""


class Volunteer:
    """One volunteer through all its restarts.

    Attributes:
        name: of its folders.
        block: which one it trains.
        port: it listens there.
        link: others reach it through this.
        process: the program that runs now, or the last one.
        is_meant_to_run: False from a kill of ours until the program is started again.
        fault_until_s: it suffers a fault until then (monotonic).
        recovered_at_s: when it last trained after a start; None before.
    """

    def __init__(self, name: str, block: int, port: int, link: Link, state_path: Path) -> None:
        """Nothing runs yet."""
        self.name = name
        self.block = block
        self.port = port
        self.link = link
        self.state_path = state_path
        self.process: DemoProcess | None = None
        self.is_meant_to_run = False
        self.fault_until_s = 0.0
        self.recovered_at_s: float | None = None

    @property
    def pid(self) -> int:
        """Of the program."""
        assert self.process is not None
        return self.process.pid

    @property
    def snapshot(self) -> NodeSnapshot | None:
        """What it says of itself; None if it does not run."""
        return self.process.snapshot if self.process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self.process is not None and self.process.is_running

    @property
    def is_training(self) -> bool:
        """Whether it has finished its start."""
        snapshot = self.snapshot
        return snapshot is not None and snapshot.state in _TRAINING

    def is_well(self, now_s: float) -> bool:
        """Trains, and suffers nothing."""
        return self.is_meant_to_run and self.is_training and now_s >= self.fault_until_s

    def family(self) -> list[psutil.Process]:
        """The program and all its children; those that are gone are left out."""
        try:
            main = psutil.Process(self.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


class Fleet(DemoSwarm):
    """One swarm: bootstrap peer, volunteers, and whoever wishes them ill."""

    def __init__(self, title: str, folder: Path, config: ChaosConfig) -> None:
        """Start nothing yet.

        Args:
            title: also the name of the run.
            folder: for output, and for state where no disks can be mounted.
            config: how many volunteers of which run.
        """
        self.temporary = Path(tempfile.mkdtemp(prefix="btc-"))
        super().__init__(folder, environment={"TMPDIR": str(self.temporary)})
        self.title = title
        self.config = config
        self.manifest = config.manifest(title)
        self.links = LinkBoard()
        self.address = ""
        self.crew: list[Volunteer] = []
        self._mounts: list[Path] = []
        self._others: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the bootstrap peer and all volunteers; they train some time later."""
        self.folder.mkdir(parents=True)
        manifest_path = self.folder / "manifest.json"
        manifest_path.write_bytes(self.manifest.canonical_bytes())
        port = free_port()
        announced = f"/ip4/127.0.0.1/tcp/{self.links.add(port).port}"
        self.address = self.start_bootstrap(
            manifest_path, "--port", str(port), "--announce", announced
        )
        for number in range(self.config.num_blocks * self.config.replicas):
            port = free_port()
            name = f"volunteer-{number}"
            volunteer = Volunteer(
                name,
                block_of(number, self.config),
                port,
                self.links.add(port),
                self._make_disk(name),
            )
            self.crew.append(volunteer)
            self.launch(volunteer)

    def launch(self, volunteer: Volunteer) -> None:
        """Start a volunteer, or start it again with what it has kept."""
        volunteer.process = DemoProcess(
            volunteer.name,
            self.folder,
            self.join_arguments(volunteer.block, volunteer.port, volunteer.link.port),
            self.token,
            state_path=volunteer.state_path,
            environment=self.environment,
        )
        volunteer.is_meant_to_run = True
        volunteer.recovered_at_s = None

    def join_arguments(self, block: int, port: int, announced_port: int) -> list[str]:
        """Of `python -m`."""
        arguments = ["node", "join", "--run", self.manifest.run_id, "--block", str(block)]
        arguments += ["--initial-peers", self.address, "--host", "127.0.0.1", "--port", str(port)]
        arguments += ["--announce", f"/ip4/127.0.0.1/tcp/{announced_port}"]
        return [*arguments, "--threads", "1", "--plain"]

    def start_attacker(self, name: str, poison: str, block: int) -> DemoProcess:
        """Start a replica that poisons averages."""
        port = free_port()
        _, *arguments = self.join_arguments(block, port, self.links.add(port).port)
        return DemoProcess(
            name,
            self.folder,
            ["benchmarks.chaos.attacker", poison, *arguments],
            self.token,
            environment=self.environment,
        )

    def start_hostile(self) -> subprocess.Popen[bytes]:
        """Start a client that sends garbage on order."""
        with (self.folder / "hostile.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.chaos.hostile", self.address],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**marked_environment(self.token), **self.environment},
                start_new_session=True,
            )
        self._others.append(process)
        return process

    def order_garbage(self, process: subprocess.Popen[bytes], victim: Volunteer, seed: int) -> bool:
        """Send garbage to a volunteer; False if the client is gone or it is not known whom."""
        snapshot = victim.snapshot
        assert process.stdin is not None
        if snapshot is None or process.poll() is not None:
            return False
        order = {"peer_id": snapshot.peer_id, "port": victim.link.port, "seed": seed}
        process.stdin.write(f"{json.dumps(order)}\n".encode())
        process.stdin.flush()
        return True

    def notice_recoveries(self, now_s: float) -> None:
        """Note who trains again, and let whoever starts next go first."""
        for volunteer in self.crew:
            if volunteer.recovered_at_s is None and volunteer.is_running and volunteer.is_training:
                volunteer.recovered_at_s = now_s
                with contextlib.suppress(psutil.Error):
                    psutil.Process(volunteer.pid).nice(_LOW_PRIORITY)  # its main thread alone

    def end(self) -> int:
        """Stop everybody; how many processes had to be killed."""
        for process in self._others:
            process.kill()
        for volunteer in self.crew:
            for member in volunteer.family():
                with contextlib.suppress(psutil.Error):
                    member.send_signal(signal.SIGCONT)
                    member.nice(min(_LOW_PRIORITY, member.nice()))
            self.links.mend(volunteer.link)
        self.volunteers = [each.process for each in self.crew if each.process is not None]
        self.stop(timeout_s=30)
        num_left = self.kill_leftovers()
        for process in self._others:
            process.wait(5)
        self.links.stop()
        return num_left

    def clear(self) -> None:
        """Let disks and temporary files go."""
        for path in self._mounts:
            subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)  # noqa: S607
        self._mounts.clear()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def temporary_files(self) -> list[str]:
        """What is left in the temporary folder; torch keeps a folder of its own there for good."""
        return sorted(
            each.name
            for each in self.temporary.iterdir()
            if not each.name.startswith("torchinductor_")
        )

    def busy_ports(self) -> list[int]:
        """Ports of volunteers on which somebody still listens."""
        return [each.port for each in self.crew if not is_free(each.port)]

    def _make_disk(self, name: str) -> Path:
        """A folder on a small disk of its own, or a plain folder where that is not allowed."""
        path = self.folder / f"{name}.disk"
        path.mkdir()
        if os.geteuid() == 0 and shutil.which("mount"):
            command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "tmpfs", str(path)]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                self._mounts.append(path)
        return path

    def fill_disk(self, volunteer: Volunteer) -> None:
        """Leave no byte free, or, without a disk of its own, take the right to write away."""
        path = volunteer.state_path
        if path not in self._mounts:
            _set_mode(path, 0o500)
            return
        with contextlib.suppress(OSError), (path / "filler").open("ab", buffering=0) as file:
            for size_bytes in (1 << 16, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size_bytes)):
                        pass

    def free_disk(self, volunteer: Volunteer) -> None:
        """Undo `fill_disk`."""
        path = volunteer.state_path
        if path not in self._mounts:
            _set_mode(path, 0o700)
            return
        (path / "filler").unlink(missing_ok=True)


def _set_mode(path: Path, mode: int) -> None:
    for folder in [path, *(each for each in path.rglob("*") if each.is_dir())]:
        folder.chmod(mode)


def now_s() -> float:
    """Monotonic."""
    return time.monotonic()
