"""Connections that end soon: strangers can hold few, for seconds, and ask once on each."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64
"""More at once are closed unanswered, so that they cost no file and no memory."""
MAX_CONNECTION_S = 15.0
"""From the first byte of a connection to the last; every answer is small and ready."""


class BriefConnection(H11Protocol):
    """uvicorn's own protocol has no time limit for a request that does not come."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or drop it at once."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._end = self.loop.call_later(MAX_CONNECTION_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to be ended."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)
