"""The server of /metrics and /healthz of a node."""

from __future__ import annotations

from collections.abc import Callable

from bt_p2p.clock import Clock
from node.http.node_app import make_node_app
from node.http.place import NODE_HTTP_PORT, HttpPlace, base_url, open_place
from node.http.thread import HttpThread
from node.rebuild import Supervisor
from node.snapshot import NodeSnapshot


def serve_node(
    place: HttpPlace | None,
    snapshot: Callable[[], NodeSnapshot],
    clock: Clock,
    say: Callable[[str], None],
    supervisor: Supervisor,
) -> HttpThread | None:
    """Begin to serve, and tell where; None if nothing is to be served, or if there is no port.

    Args:
        place: where; None for nowhere.
        snapshot: what is told, as it is at the moment of a request.
        clock: DHT time.
        say: is told what the user should know.
        supervisor: keeps the port over rebuilds.
    """
    if place is None:
        return None
    listener = open_place(place, NODE_HTTP_PORT, say, supervisor)
    if listener is None:
        return None
    server = HttpThread(make_node_app(snapshot, clock), listener)
    server.start()
    say(f"metrics on {base_url(listener)}/metrics")
    return server
