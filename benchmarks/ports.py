"""Ports for programs that a benchmark starts, ends, and starts again on the same port."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST_PORT = 10_000
_FIRST_EPHEMERAL_PORT = 32_768
"""From here on the system gives ports to outgoing connections, also one that a program will need again."""

_ports = itertools.cycle(range(_FIRST_PORT + os.getpid() % 10_000, _FIRST_EPHEMERAL_PORT))
"""Programs that run at the same time begin at different places."""


def free_port() -> int:
    """A port on which nobody listens now, another one with each call."""
    return next(filter(is_free, _ports))


def is_free(port: int) -> bool:
    """Whether one could listen on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True
