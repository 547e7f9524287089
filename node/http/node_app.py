"""The routes of a node: /metrics and /healthz."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bt_p2p.clock import Clock
from node.http.exposition import Exposition
from node.http.node_health import node_health
from node.http.node_metrics import node_metrics
from node.snapshot import NodeSnapshot


def make_node_app(read: Callable[[], NodeSnapshot], clock: Clock) -> Starlette:
    """The application of a node.

    Args:
        read: the node at this moment.
        clock: tells the time.
    """

    async def healthz(_request: Request) -> JSONResponse:
        document = node_health(read(), now_s=clock.now_s())
        return JSONResponse(document, status_code=200 if document["status"] == "ok" else 503)

    exposition = Exposition(lambda: node_metrics(read(), now_s=clock.now_s()))
    return Starlette(
        routes=[Route("/healthz", healthz), Route("/metrics", exposition.respond)],
    )
