"""What a client sends and how long it stays: bodies with a cap, work that ends with its client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request
from starlette.types import Receive

from node.serve.api_error import ApiError

MAX_BODY_SIZE_BYTES = 1 << 20
"""A prompt as long as the longest context has 64 KiB, six times that with every byte escaped."""
BODY_TIMEOUT_S = 20.0
"""A whole body, from the first header on."""


async def read_json_body(request: Request) -> bytes:
    """The body of a request that says it is JSON.

    A browser asks before it sends that type to another site, so that no web page can use a server
    on its visitor's machine.

    Raises:
        ApiError: another type, too large, or too slow.
        ClientDisconnect: the client has gone.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the body must be JSON, with the header Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_SIZE_BYTES:
                    raise ApiError(413, f"the body is over {MAX_BODY_SIZE_BYTES:,} bytes")
    except TimeoutError as exc:
        raise ApiError(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from exc
    return bytes(body)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, or cancel it when the client goes away.

    Cancelling waits until the coroutine has ended.

    Args:
        receive: of a request whose body was read.
        work: what the client waits for.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_wait_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
