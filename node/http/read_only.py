"""The border of a read-only server: methods, hosts, and the headers of every answer."""

from __future__ import annotations

import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from node.serve.guard import is_this_machine

logger = logging.getLogger(__name__)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class ReadOnly:
    """Lets GET and HEAD through to an application."""

    def __init__(self, app: ASGIApp, *, is_local: bool) -> None:
        """Wrap an application.

        Args:
            app: answers.
            is_local: it listens to this machine only. Then it also answers under names of this
                machine only: a web page can point a name of its own here, and read what is said.
        """
        self._app = app
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
            await send(message)

        app: ASGIApp = self._app
        if scope["method"] not in {"GET", "HEAD"}:
            app = PlainTextResponse("only GET and HEAD\n", 405, headers={"Allow": "GET, HEAD"})
        elif self._is_local and not is_this_machine(Headers(scope=scope).get("host", "")):
            app = PlainTextResponse("this server answers to localhost only\n", 403)
        try:
            await app(scope, receive, send_with_headers)
        except Exception:
            # Starlette has answered 500 and raises it again; nothing here is secret
            logger.exception("GET %s failed", scope["path"][:100])
