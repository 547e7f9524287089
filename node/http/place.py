"""Where a program answers HTTP, and what becomes of a port that is in use."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from bt_p2p.errors import ConfigError
from node.rebuild import Supervisor
from node.serve.server import listen

logger = logging.getLogger(__name__)

NODE_HTTP_PORT = 31381
BOOTSTRAP_HTTP_PORT = 31380

_OPTION = "--http-port"
_KEPT = "http_port"


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpPlace:
    """What the user asked for."""

    host: str
    port: int | None
    """0 takes any free one; None takes the usual one if it is free, and any other if it is not."""


def http_place(host: str, port: int | None, *, is_off: bool) -> HttpPlace | None:
    """Where to answer, checked as far as that needs no socket; None for nowhere.

    Raises:
        ConfigError: the host is no IP address, or a place is named for what is off.
    """
    if is_off:
        if port is not None:
            raise ConfigError("--no-http and --http-port exclude each other: give one of them")
        return None
    try:
        ipaddress.ip_address(host)
    except ValueError as exc:
        raise ConfigError(
            f"--http-host {host!r} is not an IP address to listen on; use 127.0.0.1 for this "
            f"machine only"
        ) from exc
    return HttpPlace(host=host, port=port)


def check_free(place: HttpPlace | None) -> None:
    """Tell early of a port that cannot be had; to be called before anything slow is done.

    Raises:
        ConfigError: the port that the user named is in use or may not be used, or this machine
            does not have the address.
    """
    if place is not None and place.port is not None:
        listen(place.host, place.port, option=_OPTION).close()


def open_place(
    place: HttpPlace, usual_port: int, say: Callable[[str], None], supervisor: Supervisor
) -> socket.socket | None:
    """Listen; call it once all processes are forked, which would keep the port otherwise.

    What nobody asked for keeps no program from its work: without a port that the user named, there
    is another one or, if need be, none. So it is for a program that is rebuilt.

    Args:
        place: where.
        usual_port: tried first if the user named none.
        say: tells the user.
        supervisor: knows the port from before a rebuild.

    Raises:
        ConfigError: the port that the user named cannot be had.
    """
    first = int(supervisor.kept.get(_KEPT, "0")) or (
        usual_port if place.port is None else place.port
    )
    try:
        listener = listen(place.host, first, option=_OPTION)
    except ConfigError as exc:
        if place.port is not None and supervisor.last is None:
            raise
        try:
            listener = listen(place.host, 0, option=_OPTION)
        except ConfigError:
            logger.warning("no HTTP: %s", exc)
            say(f"no HTTP: {exc}")
            return None
    supervisor.kept[_KEPT] = str(listener.getsockname()[1])
    return listener


def base_url(listener: socket.socket) -> str:
    """Where a program on this machine finds it, without a path."""
    host, port = listener.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - that is compared, not listened on
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
