"""Disks that do not take what is written: small, read-only, or limited for this process."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def limited_files(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow past a size; needs no rights, works everywhere."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


class SmallDisk:
    """A file system of its own in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no byte free."""
        with contextlib.suppress(OSError), (self.path / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        with contextlib.suppress(OSError), (self.path / "filler").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(1))

    def free(self) -> None:
        """Undo `fill`."""
        (self.path / "filler").unlink()

    def set_read_only(self, is_read_only: bool) -> None:
        """Remount."""
        mode = "ro" if is_read_only else "rw"
        _run("mount", "-o", f"remount,{mode}", str(self.path))


@contextlib.contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount a small disk at a folder; skips the test where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small disk")
    path.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path))
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"a small disk cannot be mounted here: {exc.stderr.decode().strip()}")
    try:
        yield SmallDisk(path)
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=10)
