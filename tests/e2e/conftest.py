"""Real `bt-node` and `bt-bootstrap` processes, each test with folders of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bt_p2p.protocol.manifest import RunManifest
from node.snapshot import NodeSnapshot, read_snapshot

END_TIMEOUT_S = 10.0
"""A node ends within this time after a signal."""


class Programs:
    """Runs the programs with a clean home, and ends what is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "OMP_NUM_THREADS": "1",
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def run(
        self,
        module: str,
        *arguments: str,
        stdin: str = "",
        timeout_s: float = 60,
        namespace: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return self.run_command(
            sys.executable, "-m", module, *arguments,
            stdin=stdin, timeout_s=timeout_s, namespace=namespace,
        )  # fmt: skip

    def run_command(
        self, *words: str, stdin: str = "", timeout_s: float = 60, namespace: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run any command to its end."""
        return subprocess.run(
            [*_inside(namespace), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=self.environment,
            cwd=self.folder,
            check=False,
        )

    def start(
        self, module: str, *arguments: str, log: str, namespace: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start a program in the background, with its output in a file."""
        return self.start_script("-m", module, *arguments, log=log, namespace=namespace)

    def start_script(
        self, *arguments: str, log: str, namespace: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start Python in the background, with its output in a file."""
        return self.start_command(sys.executable, *arguments, log=log, namespace=namespace)

    def start_command(self, *words: str, log: str, namespace: str = "") -> subprocess.Popen[bytes]:
        """Start any command in the background, with its output in a file."""
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(
                [*_inside(namespace), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def text(self, log: str) -> str:
        """What a background program has printed."""
        return (self.folder / log).read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Stop what a test left running."""
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self._running:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _inside(namespace: str) -> list[str]:
    return ["ip", "netns", "exec", namespace] if namespace else []


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """The programs, in a folder of this module."""
    found = Programs(tmp_path_factory.mktemp("e2e"))
    yield found
    found.end()


def wait_until(condition: Callable[[], object], *, deadline_s: float, what: str) -> None:
    """Wait for a condition, and fail with its name."""
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        if condition():
            return
        time.sleep(0.1)
    pytest.fail(f"not within {deadline_s:.0f} s: {what}")


def node_of(state: Path) -> NodeSnapshot:
    """The snapshot of a node that runs."""
    snapshot = read_snapshot(state)
    assert snapshot is not None
    return snapshot


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below one."""
    return psutil.Process(pid).children(recursive=True)


def write_tiny_manifest(path: Path, **changes: object) -> RunManifest:
    """A run of two small blocks with quick rounds."""
    manifest = RunManifest.build(
        {
            "name": "tiny",
            "model": {
                "num_blocks": 2,
                "layers_per_block": 1,
                "d_model": 32,
                "num_heads": 2,
                "context": 64,
            },
            "rounds": {"round_s": 4},
            "optimizer": {"batch_size": 8},
            **changes,
        }
    )
    path.write_bytes(manifest.canonical_bytes())
    return manifest
