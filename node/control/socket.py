"""The control socket: where it is, and who is at its other end."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

SOCKET_NAME = "control.sock"
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group, as `struct ucred` of unix(7)."""


@contextlib.contextmanager
def short_path(state_dir: Path) -> Iterator[str]:
    """A name of the socket of at most 108 bytes, which is all that the system takes."""
    descriptor = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


def listen(state_dir: Path) -> socket.socket:
    """A socket that only its user may open; one that an earlier node left is removed.

    Call it with the lock of the state folder held.

    Raises:
        OSError: it cannot be made.
    """
    (state_dir / SOCKET_NAME).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before there is a name: nobody else gets in between
        with short_path(state_dir) as path:
            listening.bind(path)
        (state_dir / SOCKET_NAME).chmod(0o600)  # where the system does not pass the mode on
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


def user_at_other_end(connection: socket.socket) -> int:
    """User id of the process that has connected, as the system says."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])
