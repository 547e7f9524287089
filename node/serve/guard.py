"""Who may ask: whoever has the API key or, without one, this machine only."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from bt_p2p.errors import ConfigError
from node.serve.api_error import ApiError

OPEN_PATHS = frozenset({"/healthz"})
"""Need no key: what watches a server should not hold the right to use it."""


def check_exposure(host: str, api_key: str | None) -> None:
    """Refuse to let strangers in unasked.

    Args:
        host: where to listen.
        api_key: what clients must give, if anything.

    Raises:
        ConfigError: the host is no IP address, the key cannot be sent in a header, or the host is
            not this machine's own and there is no key.
    """
    if api_key is not None and not (
        api_key.isascii() and api_key.isprintable() and api_key.split() == [api_key]
    ):
        raise ConfigError("the API key must be printable ASCII without spaces, and not empty")
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError as exc:
        raise ConfigError(
            f"host {host!r} is not an IP address to listen on; use 127.0.0.1 for this machine only"
        ) from exc
    if not is_loopback and api_key is None:
        raise ConfigError(
            f"host {host} can be reached from other machines; set an API key with BT_NODE_API_KEY "
            f"or --api-key, or listen on 127.0.0.1"
        )


class Guard:
    """Lets requests through to an application, or answers them itself."""

    def __init__(self, app: ASGIApp, *, api_key: str | None) -> None:
        """Wrap an application."""
        self._app = app
        self._expected = None if api_key is None else f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request before its body is read."""
        if scope["type"] == "http":
            problem = self._problem(Headers(scope=scope), scope["path"])
            if problem is not None:
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _problem(self, headers: Headers, path: str) -> ApiError | None:
        if self._expected is None:
            # a web page can point a name of its own at this machine, but not send another Host
            if is_this_machine(headers.get("host", "")):
                return None
            return ApiError(
                403,
                "without an API key this server answers to localhost only; call it as "
                "http://127.0.0.1, or start it with --api-key",
            )
        if path in OPEN_PATHS:
            return None
        kind, _, key = headers.get("authorization", "").partition(" ")
        given = f"{kind.capitalize()} {key.strip()}".encode()
        if hmac.compare_digest(given, self._expected):
            return None
        return ApiError(
            401,
            "the API key is missing or wrong; send it as: Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def is_this_machine(host: str) -> bool:
    """Whether a Host header, or the address in it, names this machine alone."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
