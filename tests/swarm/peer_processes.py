"""Peers in processes of their own, to be killed, stopped and spoilt.

One nursery process imports hivemind once and forks a peer for each request, which takes a fraction
of a second. A peer takes one command at a time, as JSON lines on a Unix socket, and ends when the
socket does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.swarm.waiting import wait_until

PROGRAM = Path(__file__).with_name("peer_program.py")
START_TIMEOUT_S = 25.0
REPLY_TIMEOUT_S = 20.0


class PeerFailedError(Exception):
    """A command raised in the peer; `kind` is the class of the error there."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class PeerProcess:
    """The test's end of one peer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rw", encoding="utf-8")
        self.pid = int(self.wait(timeout_s=START_TIMEOUT_S)["pid"])

    def send(self, command: str, **arguments: Any) -> None:
        """Start a command; `wait` for its answer."""
        self._file.write(json.dumps({"command": command, **arguments}) + "\n")
        self._file.flush()

    def wait(self, *, timeout_s: float = REPLY_TIMEOUT_S) -> Any:
        """The answer to the command that was sent."""
        self._connection.settimeout(timeout_s)
        line = self._file.readline()
        if not line:
            raise EOFError("the peer has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerFailedError(answer["error"], answer["message"])
        return answer["result"]

    def ask(self, command: str, *, timeout_s: float = REPLY_TIMEOUT_S, **arguments: Any) -> Any:
        """Send a command and wait for its answer."""
        self.send(command, **arguments)
        return self.wait(timeout_s=timeout_s)

    def tree(self) -> list[psutil.Process]:
        """The peer's main process, and below it the DHT, the daemon and averagers."""
        try:
            main = psutil.Process(self.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def signal_main(self, number: int) -> None:
        """A signal for the main process alone."""
        os.kill(self.pid, number)

    def freeze(self) -> list[psutil.Process]:
        """Stop every process of the peer, as a sleeping laptop does; what was stopped."""
        tree = self.tree()
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        return tree

    def end(self) -> None:
        """Hang up, and kill what is left."""
        tree = self.tree()
        with contextlib.suppress(OSError):
            self._file.close()
        self._connection.close()
        kill_all(tree)


class Nursery:
    """Forks peers."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "s"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(self._path))
        self._listener.listen(8)
        self._listener.settimeout(START_TIMEOUT_S)
        self.log_path = folder / "nursery.log"
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, os.fspath(PROGRAM), os.fspath(self._path)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=PROGRAM.parents[2],
            )
        self._peers: list[PeerProcess] = []

    def peer(self) -> PeerProcess:
        """A new process that waits for commands."""
        self._process.stdin.write(b"fork\n")
        self._process.stdin.flush()
        connection, _ = self._listener.accept()
        peer = PeerProcess(connection)
        self._peers.append(peer)
        return peer

    def end(self) -> None:
        """End all peers and the nursery."""
        for peer in self._peers:
            peer.end()
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(3)
        self._process.kill()
        self._process.wait(3)
        self._listener.close()


@contextlib.contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    """A nursery whose peers all end with it."""
    found = Nursery(folder)
    try:
        yield found
    finally:
        found.end()


def kill_all(processes: list[psutil.Process]) -> None:
    """SIGKILL each, by pid, and wait for it."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    wait_gone(processes, deadline_s=5)


def wait_gone(processes: list[psutil.Process], *, deadline_s: float) -> None:
    """Until none of them runs any more; zombies that nobody has collected yet count as gone."""
    wait_until(
        lambda: not [process for process in processes if _is_running(process)],
        deadline_s=deadline_s,
    )


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
