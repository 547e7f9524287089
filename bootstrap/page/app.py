"""The routes of a bootstrap peer: the page and its files, the document, figures and health."""

from __future__ import annotations

import importlib.resources
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from bootstrap.page.board import SwarmBoard
from bootstrap.page.document import swarm_document
from bootstrap.page.html import make_template, page_text
from bootstrap.page.metrics import swarm_metrics
from bt_p2p.clock import Clock
from node.http.exposition import Exposition

KEEP_S = 1.0
"""The page is made at most this often, however often it is asked for."""

_FILES = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


def make_swarm_app(board: SwarmBoard, clock: Clock) -> Starlette:
    """The application of a bootstrap peer.

    Args:
        board: knows the swarm.
        clock: tells the time.
    """
    answers = _Answers(board, clock)
    exposition = Exposition(lambda: swarm_metrics(board.view()))
    return Starlette(
        routes=[
            Route("/", answers.page),
            Route("/api/v1/swarm", answers.document),
            Route("/healthz", answers.health),
            Route("/metrics", exposition.respond),
            *(_file_route(name, kind) for name, kind in _FILES.items()),
        ]
    )


class _Answers:
    """What is made from the board, kept for `KEEP_S`."""

    def __init__(self, board: SwarmBoard, clock: Clock) -> None:
        self._board = board
        self._clock = clock
        self._template = make_template()
        self._made_at_s = float("-inf")
        self._document: dict[str, Any] = {}
        self._page = ""

    async def page(self, _request: Request) -> HTMLResponse:
        self._refresh()
        return HTMLResponse(self._page)

    async def document(self, _request: Request) -> JSONResponse:
        self._refresh()
        return JSONResponse(self._document)

    async def health(self, _request: Request) -> JSONResponse:
        view = self._board.view()
        return JSONResponse(
            {
                "status": "stale" if view.is_stale else "ok",
                "age_s": None if view.age_s is None else round(view.age_s, 3),
                "runs": len(view.runs),
                "uncovered_blocks": sum(len(run.overview.uncovered) for run in view.runs),
            },
            status_code=503 if view.is_stale else 200,
        )

    def _refresh(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._made_at_s < KEEP_S:
            return
        self._document = swarm_document(self._board.view())
        self._page = page_text(self._template, self._document)
        self._made_at_s = now_s


def _file_route(name: str, kind: str) -> Route:
    content = (importlib.resources.files("bootstrap.page") / "files" / name).read_bytes()

    async def respond(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return Route(f"/{name}", respond)
