"""The routes, and what becomes of an error that reaches them."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bt_p2p.clock import SystemClock
from node.serve.api_error import ApiError
from node.serve.completions import CompletionLimits, Completions
from node.serve.guard import Guard
from node.serve.health import Health
from node.serve.served_run import ServedRun

logger = logging.getLogger(__name__)


def make_app(run: ServedRun, limits: CompletionLimits, *, api_key: str | None) -> ASGIApp:
    """The ASGI application that serves a run.

    Args:
        run: which, and how it is asked.
        limits: what requests may take.
        api_key: what clients must give; None answers to this machine only.
    """
    models = _model_list(run.manifest.run_id)

    async def list_models(_request: Request) -> JSONResponse:
        return JSONResponse(models)

    starlette = Starlette(
        routes=[
            Route("/v1/completions", Completions(run, limits), methods=["POST"]),
            Route("/v1/models", list_models),
            Route("/healthz", Health(run).respond),
        ],
        exception_handlers={
            ApiError: _answer_api_error,
            HTTPException: _answer_http_error,
            Exception: _answer_fault,
        },
    )
    return _Border(Guard(starlette, api_key=api_key))


def _model_list(run_id: str) -> dict[str, object]:
    model = {
        "id": run_id,
        "object": "model",
        "created": int(SystemClock().now_s()),
        "owned_by": "swarm",
    }
    return {"object": "list", "data": [model]}


async def _answer_api_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error.response()


async def _answer_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _answer_fault(_request: Request, _error: Exception) -> JSONResponse:
    return ApiError(500, "this is a fault of the server; its log says where").response()


class _Border:
    """The last border of a request: a fault is logged by its place, never by a text in it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as exc:  # noqa: BLE001 - Starlette has answered, and raises it again
            logger.error("a request failed: %s at %s", type(exc).__name__, _place(exc))  # noqa: TRY400


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-4:][::-1])
