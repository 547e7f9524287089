"""Private folders for the sockets of a node, and how those of dead nodes are found.

Each bears the process id of its owner. They are kept short: a socket path may have 107 characters.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import multiprocessing.util
import os
import shutil
import tempfile
from pathlib import Path

import psutil

_PREFIX = "bt-node-"


_ATTEMPTS = 3
"""A daemon that is just starting may put a socket into a folder while it is removed."""


def make_temp_folder() -> Path:
    """A private folder of this process, removed when it ends if not before.

    Those of processes that are gone are removed.
    """
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            remove_temp_folder(folder)
    _remove_all_at_exit(os.getpid())  # first: a signal may end the program at any moment
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


def remove_temp_folder(folder: Path) -> None:
    """Remove a folder of sockets, whoever is about to open one in it."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def remove_temp_folders(process_id: int) -> None:
    """Remove all folders of a process that has ended, or is about to be replaced."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{process_id}-*"):
        remove_temp_folder(folder)


@functools.cache
def _remove_all_at_exit(process_id: int) -> None:
    """As late as the standard library removes its own, after the children that have sockets there."""
    multiprocessing.util.Finalize(None, remove_temp_folders, args=(process_id,), exitpriority=-100)


def keep_shared_memory_sockets_here() -> None:
    """Make the standard library put its sockets into such a folder, children's too.

    Its own folder does not say whose it is, so that nobody could remove it after a `kill -9`.
    """
    config = multiprocessing.process.current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is None:
        config["tempdir"] = str(make_temp_folder())
