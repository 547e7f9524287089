"""GET /healthz: whether every block has a holder that answers requests."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import JSONResponse

from bt_p2p.chain.route import plan_route
from bt_p2p.errors import NoRouteError, SwarmError
from node.serve.served_run import ServedRun

_KEEP_S = 2.0
"""The swarm is read at most this often, however often it is asked for."""


class Health:
    """The state of a run, read when it is asked for."""

    def __init__(self, run: ServedRun) -> None:
        """Nothing is read yet."""
        self._run = run
        self._lock = asyncio.Lock()
        self._read_at_s = float("-inf")
        self._seen: tuple[int, dict[str, object]] = (503, {})

    async def respond(self, _request: Request) -> JSONResponse:
        """200 if text can be generated, else 503 with the reason."""
        async with self._lock:
            if time.monotonic() - self._read_at_s > _KEEP_S:
                self._seen = await self._read()
                self._read_at_s = time.monotonic()
            status, document = self._seen
        return JSONResponse(document, status_code=status)

    async def _read(self) -> tuple[int, dict[str, object]]:
        manifest = self._run.manifest
        document: dict[str, object] = {
            "status": "ok",
            "run_id": manifest.run_id,
            "blocks": manifest.model.num_blocks,
            "missing_blocks": [],
        }
        try:
            plan_route(await asyncio.to_thread(self._run.look_up), latency_s={})
        except NoRouteError as exc:
            return 503, {
                **document,
                "status": "missing_blocks",
                "missing_blocks": list(exc.missing_blocks),
            }
        except SwarmError as exc:
            return 503, {
                **document,
                "status": "no_answer",
                "missing_blocks": None,
                "error": str(exc),
            }
        return 200, document
