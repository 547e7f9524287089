"""The demo's peers: the real programs in processes of their own, and a count of what they leave."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from bt_p2p.errors import SwarmError
from node.snapshot import NodeSnapshot, read_snapshot

logger = logging.getLogger(__name__)

_TOKEN_NAME = "BT_DEMO_TOKEN"  # noqa: S105 - marks our processes, protects nothing
_POLL_S = 0.2
_GRACE_S = 10.0


class DemoProcess:
    """One peer of the demo."""

    def __init__(
        self,
        name: str,
        folder: Path,
        arguments: list[str],
        token: str,
        *,
        state_path: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `python -m …` in a session of its own, with its output in a file.

        Args:
            name: of its files.
            folder: for them.
            arguments: module and command line, without --state-dir.
            token: marks it and its children.
            state_path: its state folder; one in `folder` if None.
            environment: variables beside those of this process.
        """
        self.name = name
        self.state_path = state_path or folder / name
        self.log_path = folder / f"{name}.log"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments, "--state-dir", str(self.state_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**marked_environment(token), **(environment or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the program."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self._process.poll() is None

    @property
    def snapshot(self) -> NodeSnapshot | None:
        """What the node says of itself; None before it has said anything."""
        return read_snapshot(self.state_path)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        if self.is_running:
            self._process.send_signal(number)

    def wait_ended(self, *, timeout_s: float) -> bool:
        """Wait for the end; says whether it came in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_lines(self, count: int = 5) -> str:
        """The end of its output."""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-count:])


class DemoSwarm:
    """Starts, finds and ends the processes of one demo."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str] | None = None) -> None:
        """Use an empty folder for state and output, and variables beside those of this process."""
        self.folder = folder
        self.environment = dict(environment or {})
        self.token = secrets.token_hex(8)
        self.bootstrap: DemoProcess | None = None
        self.volunteers: list[DemoProcess] = []

    def start_bootstrap(self, manifest_path: Path, *options: str) -> str:
        """Start the bootstrap peer, with more options if need be; returns the address it prints."""
        arguments = ["bootstrap", "--manifest", str(manifest_path), "--host", "127.0.0.1"]
        arguments += options or ["--port", "0"]
        self.bootstrap = DemoProcess(
            "bootstrap", self.folder, arguments, self.token, environment=self.environment
        )

        def address() -> str:
            assert self.bootstrap is not None
            words = self.bootstrap.last_lines(20).split()
            return next((word for word in words if word.startswith("/ip4/")), "")

        return wait_for(address, self.bootstrap, what="the bootstrap peer", timeout_s=60)

    def start_volunteer(self, name: str, run_id: str, address: str) -> DemoProcess:
        """Start a volunteer that enters through an address and chooses its own block."""
        arguments = ["node", "join", "--run", run_id, "--initial-peers", address]
        arguments += ["--host", "127.0.0.1", "--threads", "1", "--plain"]
        volunteer = DemoProcess(
            name, self.folder, arguments, self.token, environment=self.environment
        )
        self.volunteers.append(volunteer)
        return volunteer

    def stop(self, *, timeout_s: float) -> None:
        """Ask all to leave, as Ctrl-C does, and wait; kills nothing."""
        processes = [*self.volunteers, *([self.bootstrap] if self.bootstrap else [])]
        for process in processes:
            process.send(signal.SIGINT)
        deadline_s = time.monotonic() + timeout_s
        for process in processes:
            process.wait_ended(timeout_s=max(0.0, deadline_s - time.monotonic()))

    def leftovers(self) -> list[psutil.Process]:
        """Processes of this demo that are still there, children of dead parents included."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(_TOKEN_NAME) == self.token
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def kill_leftovers(self) -> int:
        """Kill what does not end by itself within a grace period; returns how many there were.

        torch's shared memory helper ends by itself shortly after its program.
        """
        _, found = psutil.wait_procs(self.leftovers(), timeout=_GRACE_S)
        for process in found:
            logger.warning("left running: %s", _describe(process))
            process.kill()
        psutil.wait_procs(found, timeout=5)
        return len(found)


def marked_environment(token: str) -> dict[str, str]:
    """The environment of a process that is to be found again as ours."""
    return {**os.environ, _TOKEN_NAME: token, "OMP_NUM_THREADS": "1"}


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.name()} {' '.join(process.cmdline())[:100]}"
    except psutil.Error:
        return f"{process.pid}"


def wait_for(
    condition: Callable[[], str], process: DemoProcess, *, what: str, timeout_s: float
) -> str:
    """Wait until a condition gives text, while a process lives.

    Raises:
        SwarmError: the process ended, or the time is over; shows the end of its output.
    """
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        found = condition()
        if found:
            return found
        if not process.is_running:
            raise SwarmError(f"{what} ended early: {process.last_lines()}")
        time.sleep(_POLL_S)
    raise SwarmError(f"{what} was not ready within {timeout_s:.0f} s: {process.last_lines()}")
