"""Ports to listen on, checked with a bind of our own.

Two hivemind peers share a busy port silently (SO_REUSEPORT), and joins then reach the wrong one.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

import psutil

from bt_p2p.errors import ConfigError


def check_port_is_free(host: str, port: int) -> None:
    """Listen on the port for a moment, without sharing it, and let it go.

    Connections of a program that has ended may linger on a port for a minute. They do not count:
    a node that is started again at once keeps its port.

    Args:
        host: IPv4 or IPv6 address to listen on.
        port: 0 lets the system choose, and always passes.

    Raises:
        ConfigError: the port is in use, or may not be used; names the process where it is known.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        # skips what lingers; others that listen are still found, whatever they have set
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                reason = f"is in use{_owner_of(port)}"
            elif exc.errno == errno.EACCES:
                reason = "needs more rights than yours"
            else:
                reason = f"cannot be used on {host} ({exc.strerror})"
            raise ConfigError(
                f"port {port} {reason}; choose another with --port, or --port 0 for any free one"
            ) from exc


def listen_address(host: str, port: int) -> str:
    """The multiaddr that listens on an IP address and a port.

    Raises:
        ConfigError: the host is not an IP address.
    """
    try:
        version = ipaddress.ip_address(host).version
    except ValueError as exc:
        raise ConfigError(
            f"host {host!r} is not an IP address to listen on; use 0.0.0.0 for all, or 127.0.0.1 "
            f"for this machine only"
        ) from exc
    return f"/ip{version}/{host}/tcp/{port}"


def _owner_of(port: int) -> str:
    try:
        connections = psutil.net_connections(kind="inet")
    except (psutil.Error, OSError):
        return ""
    for connection in connections:
        if (
            connection.laddr
            and connection.laddr.port == port
            and connection.status == psutil.CONN_LISTEN
            and connection.pid
        ):
            return f" by process {connection.pid}"
    return ""
