"""uvicorn on an event loop that runs already, and the socket it listens on."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from bt_p2p.errors import ConfigError

_GRACE_S = 1
"""Answers that are under way when the server ends get this long."""


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Listen on an address.

    Args:
        host: an IP address.
        port: 0 lets the system choose.
        option: how the user names another port.

    Raises:
        ConfigError: the port is in use or may not be used, or this machine does not have the
            address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as exc:
        listener.close()
        if exc.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} is in use on {host}; choose another with {option}"
            ) from exc
        reason = "needs more rights than yours" if exc.errno == errno.EACCES else exc.strerror
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}") from exc
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients find the interface."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


class HttpServer:
    """Serves an application until it is told to end; signals and logs are the caller's."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        is_debugging: bool,
        protocol: type[asyncio.Protocol] | Literal["h11"] = "h11",
    ) -> None:
        """Configure; nothing is served before `serve`.

        Args:
            app: answers.
            is_debugging: whether uvicorn may log.
            protocol: of a connection.
        """
        if not is_debugging:
            # any stranger can make it complain; faults of the application are logged there
            logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = uvicorn.Server(config)

    async def serve(self, listener: socket.socket) -> None:
        """Serve until `end`; cancels what does not end in time."""
        await self._server.serve(sockets=[listener])

    def end(self) -> None:
        """Ask it to end; from any thread."""
        self._server.should_exit = True
