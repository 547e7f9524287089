"""Server-sent events as OpenAI's clients read them."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import ClientDisconnect
from starlette.types import Message, Send

SEND_TIMEOUT_S = 30.0
"""A client that does not read for so long is treated as gone."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies would collect events otherwise
]


class EventStream:
    """One response; every call raises ClientDisconnect if the client does not read."""

    def __init__(self, send: Send) -> None:
        """Wrap the connection; nothing is sent yet."""
        self._send = send

    async def start(self) -> None:
        """Send the status; from now on an error can only be an event."""
        await self._put({"type": "http.response.start", "status": 200, "headers": _HEADERS})

    async def event(self, document: object) -> None:
        """Send one JSON document."""
        await self._data(json.dumps(document, ensure_ascii=False, separators=(",", ":")))

    async def done(self) -> None:
        """Say that nothing is missing."""
        await self._data("[DONE]")

    async def end(self) -> None:
        """End the response."""
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def _data(self, text: str) -> None:
        body = f"data: {text}\n\n".encode()
        await self._put({"type": "http.response.body", "body": body, "more_body": True})

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._send(message)
        except TimeoutError as exc:
            raise ClientDisconnect from exc
