"""How child processes are kept from outliving their parent, and what dead parents left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import psutil
from hivemind.p2p import P2P

_WATCH_PERIOD_S = 0.5
_SOCKET_FOLDER_PREFIX = "bt-node-"


def live_with_parent() -> None:
    """Call first in a forked child: leave the terminal's signals, and end when the parent does.

    A session of its own keeps Ctrl-C and hang-ups of the terminal from ending the peer-to-peer
    daemon before the node has withdrawn its lease.
    """
    os.setsid()
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_PERIOD_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def make_socket_folder() -> Path:
    """A private folder for this process's Unix sockets; `P2P` puts its sockets there from now on.

    Folders of dead processes are removed. Kept short: a socket path may have 107 characters.
    """
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{_SOCKET_FOLDER_PREFIX}*"):
        owner = folder.name.removeprefix(_SOCKET_FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_SOCKET_FOLDER_PREFIX}{os.getpid()}-", dir=root))
    P2P._UNIX_SOCKET_PREFIX = f"/unix{folder}/"
    return folder
