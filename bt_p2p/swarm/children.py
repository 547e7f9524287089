"""How child processes are kept from outliving their parent, and what dead parents left behind."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import psutil
from hivemind.p2p import P2P

_WATCH_PERIOD_S = 0.5
_FOLDER_PREFIX = "bt-node-"


def live_with_parent() -> None:
    """Call first in a forked child: leave the terminal's signals, and end when the parent does.

    A session of its own keeps Ctrl-C and hang-ups of the terminal from ending the peer-to-peer
    daemon before the node has withdrawn its lease. What a killed parent cannot remove any more is
    removed here.
    """
    os.setsid()
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_PERIOD_S)
        for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}{parent}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def make_socket_folder() -> Path:
    """A private folder for this process's Unix sockets; `P2P` puts its sockets there from now on.

    Folders of dead processes are removed. Kept short: a socket path may have 107 characters.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        owner = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    folder = _make_folder()
    P2P._UNIX_SOCKET_PREFIX = f"/unix{folder}/"
    return folder


def make_multiprocessing_folder() -> None:
    """Give Python's own sockets between processes a folder that bears our process's number.

    The one that Python makes by itself cannot be told from others' once its owner was killed.
    """
    folder = _make_folder()
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]
    multiprocessing.util.Finalize(
        None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=-100
    )


def _make_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
