"""A relay in front of every peer: the swarm sees only the relays, which cut and slow links.

A volunteer's link is hurt in both directions: what others open to it comes through its relay, and
what it opens to others is known by its source port, since libp2p dials from where it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

_HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 14
_LOOK_S = 0.05
_TIMEOUT_S = 10.0

CutMode = Literal["reset", "silence"]
"""Connections break, or no byte passes any more while they stay open."""


@dataclass(slots=True)
class Link:
    """Between one peer and everybody else."""

    target_port: int
    port: int = 0
    """Of the relay: what others dial."""
    cut: CutMode | None = None
    one_way_s: float = 0.0
    bytes_per_s: float = float("inf")
    connections: set[asyncio.Task[None]] = field(default_factory=set)


class LinkBoard:
    """All links of a swarm, on a thread of their own."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._links: dict[int, Link] = {}
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def add(self, target_port: int) -> Link:
        """Put a relay in front of a port."""
        link: Link = self._run(self._add(target_port))
        return link

    def cut(self, link: Link, mode: CutMode) -> None:
        """From now on nothing passes."""
        self._run(self._cut(link, mode))

    def slow(self, link: Link, *, one_way_s: float, bytes_per_s: float) -> None:
        """Delay every chunk, and send no more than this."""
        link.one_way_s, link.bytes_per_s = one_way_s, bytes_per_s

    def mend(self, link: Link) -> None:
        """As at first."""
        link.cut, link.one_way_s, link.bytes_per_s = None, 0.0, float("inf")

    def stop(self) -> None:
        """Break everything and end the thread."""
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    async def _add(self, target_port: int) -> Link:
        link = Link(target_port)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(link, reader, writer)

        server = await asyncio.start_server(accept, _HOST, 0)
        link.port = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        self._links[target_port] = link
        return link

    async def _cut(self, link: Link, mode: CutMode) -> None:
        link.cut = mode
        if mode == "reset":
            for task in list(link.connections):
                task.cancel()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks = {task for link in self._links.values() for task in link.connections}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # broken connections are closed in the loop's next turn

    async def _serve(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        source = self._links.get(writer.get_extra_info("peername")[1])
        links = [link] if source is None else [link, source]
        task = asyncio.current_task()
        assert task is not None
        writers = [writer]
        with _listed(task, links):
            try:
                if any(each.cut == "reset" for each in links):
                    return
                far_reader, far_writer = await asyncio.open_connection(_HOST, link.target_port)
                writers.append(far_writer)
                await _until_one_ends(
                    _pump(reader, far_writer, links), _pump(far_reader, writer, links)
                )
            except (OSError, asyncio.CancelledError):
                pass  # nobody there, or the link is cut: both ends are closed
            finally:
                for each in writers:
                    each.transport.abort()


@contextlib.contextmanager
def _listed(task: asyncio.Task[None], links: list[Link]) -> Iterator[None]:
    for link in links:
        link.connections.add(task)
    try:
        yield
    finally:
        for link in links:
            link.connections.discard(task)


async def _until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, links: list[Link]
) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        while any(link.cut for link in links):  # noqa: ASYNC110 - any of two links may change
            await asyncio.sleep(_LOOK_S)
        wait_s = sum(link.one_way_s for link in links)
        wait_s += len(data) / min(link.bytes_per_s for link in links)
        if wait_s:
            await asyncio.sleep(wait_s)
        writer.write(data)
        await writer.drain()
