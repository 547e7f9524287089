"""Private folders for the sockets of a node, and how those of dead nodes are found.

Each bears the process id of its owner. They are kept short: a socket path may have 107 characters.
"""

from __future__ import annotations

import multiprocessing.process
import multiprocessing.util
import os
import shutil
import tempfile
from pathlib import Path

import psutil

_PREFIX = "bt-node-"


def make_temp_folder() -> Path:
    """A private folder of this process; those of processes that are gone are removed."""
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


def remove_temp_folders(process_id: int) -> None:
    """Remove all folders of a process that has ended, or is about to be replaced."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{process_id}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def keep_shared_memory_sockets_here() -> None:
    """Make the standard library put its sockets into such a folder, children's too.

    Its own folder does not say whose it is, so that nobody could remove it after a `kill -9`.
    """
    config = multiprocessing.process.current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is None:
        folder = make_temp_folder()
        # as late as the standard library removes its own, after all that has sockets there
        multiprocessing.util.Finalize(
            None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=-100
        )
        config["tempdir"] = str(folder)
