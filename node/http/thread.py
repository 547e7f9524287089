"""An HTTP server in a thread of its own, for programs whose main thread has other things to do."""

from __future__ import annotations

import asyncio
import socket
import threading

from starlette.types import ASGIApp

from bt_p2p.protocol.limits import STOP_TIMEOUT_S
from node.http.brief_connection import BriefConnection
from node.http.read_only import ReadOnly
from node.serve.guard import is_this_machine
from node.serve.server import HttpServer


class HttpThread:
    """Serves an application, to be read by anybody who reaches the listener."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        """Not serving before `start`.

        Args:
            app: the routes; errors in it are answered here.
            listener: closed at the end.
        """
        self._listener = listener
        is_local = is_this_machine(_bracketed(listener.getsockname()[0]))
        self._server = HttpServer(
            ReadOnly(app, is_local=is_local), is_debugging=False, protocol=BriefConnection
        )
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, and free the port; idempotent."""
        self._server.end()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S / 4)
        self._listener.close()

    def _run(self) -> None:
        asyncio.run(self._server.serve(self._listener))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
