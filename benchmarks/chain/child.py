"""A program started by the benchmark: JSON lines to and from it, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from bt_p2p.errors import SwarmError

_GRACE_S = 10.0


class Child:
    """`python -m MODULE` in a session of its own; it ends when its stdin does, so also with us.

    Attributes:
        is_killed: by `kill`.
    """

    def __init__(self, module: str, arguments: Iterable[str], log_path: Path) -> None:
        """Start it; what it writes to stderr goes to the end of a file."""
        self.is_killed = False
        self._log_path = log_path
        self._family: list[psutil.Process] = []
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def tell(self, line: str) -> None:
        """Write one line to its stdin.

        Raises:
            SwarmError: it has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as exc:
            raise SwarmError(f"a program of the benchmark has ended: {self._last_line()}") from exc

    def hear(self, *, timeout_s: float) -> Any:
        """The next line it prints, which is JSON.

        Raises:
            SwarmError: it has ended, or says nothing in time.
        """
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            problem = "has ended" if ready else f"did not answer in {timeout_s:g} s"
            raise SwarmError(f"a program of the benchmark {problem}: {self._last_line()}")
        return json.loads(line)

    @property
    def pid(self) -> int:
        """Of the program itself."""
        return self._process.pid

    def note_family(self) -> None:
        """Remember its children, to see that they end with it."""
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended; those known before count
            self._family = psutil.Process(self.pid).children(recursive=True)

    def freeze(self) -> None:
        """Stop the program, though not its own children."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As `kill -9` of the program does; its own children notice by themselves."""
        self.is_killed = True
        self._process.kill()

    def ask_to_end(self) -> None:
        """End its stdin; call `end` later."""
        if self._process.poll() is None:
            self.note_family()
            self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended before it read everything
            self._process.stdin.close()

    def end(self) -> None:
        """Wait until it and its children are gone; kill what takes too long."""
        self.ask_to_end()
        deadline_s = time.monotonic() + _GRACE_S
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        left_s = max(1.0, deadline_s - time.monotonic())
        _, alive = psutil.wait_procs(self._family, timeout=left_s)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=_GRACE_S)

    def _last_line(self) -> str:
        text = self._log_path.read_text(encoding="utf-8", errors="replace").strip()
        return text.splitlines()[-1][:300] if text else "it left no message"


def family_cpu_s(pid: int) -> float:
    """CPU seconds that a process and its children have used so far."""
    main = psutil.Process(pid)
    return sum(own_cpu_s(process.pid) for process in (main, *main.children(recursive=True)))


def own_cpu_s(pid: int) -> float:
    """CPU seconds that a process alone has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
