"""How child processes are kept from outliving their parent."""

from __future__ import annotations

import os
import threading
import time

from bt_p2p.swarm.temp_folder import remove_temp_folders

_WATCH_PERIOD_S = 0.5


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
        remove_temp_folders(parent)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
