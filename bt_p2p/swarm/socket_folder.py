"""Where hivemind puts the sockets of the peers of this process: the folder of the newest that goes on.

hivemind has one place for all of them, and an averager that is started later listens there too. It must be
that of a peer that still runs, whichever of them stops first.
"""

from __future__ import annotations

from pathlib import Path

from hivemind.p2p import P2P

from bt_p2p.swarm.temp_folder import make_temp_folder, remove_temp_folder

_hivemind_prefix: str = P2P._UNIX_SOCKET_PREFIX
_open: list[Path] = []
"""In order of their beginnings."""


def open_socket_folder() -> Path:
    """A new folder, in which sockets are opened from now on."""
    folder = make_temp_folder()
    _open.append(folder)
    _use_newest()
    return folder


def close_socket_folder(folder: Path) -> None:
    """Open no more sockets in a folder, and remove it; idempotent."""
    if folder in _open:
        _open.remove(folder)
        _use_newest()
    remove_temp_folder(folder)


def _use_newest() -> None:
    P2P._UNIX_SOCKET_PREFIX = f"/unix{_open[-1]}/" if _open else _hivemind_prefix
