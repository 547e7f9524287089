"""A wide-area link on one machine: a TCP relay that delays and throttles.

    python -m benchmarks.chain.relay PORT...

For every port of this machine it listens on one of its own, prints all of those as a line of JSON,
and forwards to and fro until stdin ends. A line on stdin such as {"one_way_ms": 25, "mbit_per_s":
20} changes the link for the bytes that come after it, and is answered by an empty line of JSON;
0 Mbit/s is no limit.

A link belongs to a port: all connections through it share its rate, each direction by itself.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

CHUNK_BYTES = 1 << 14
"""Forwarded at once; at 20 Mbit/s it takes 6.6 ms."""
_BACKLOG_S = 0.1
"""Bytes that would have to wait longer for their turn are left with the sender."""
_HOST = "127.0.0.1"

Item = tuple[float, bytes]
"""When the bytes arrive at the far end, and the bytes; no bytes is the end."""


@dataclass(kw_only=True, slots=True)
class Lane:
    """One direction of a link."""

    one_way_s: float = 0.0
    bytes_per_s: float = float("inf")
    free_at_s: float = field(default=0.0, init=False)
    """When the last byte accepted so far has left."""

    def arrival_s(self, size_bytes: int, now_s: float) -> float:
        """When bytes that are sent now have arrived whole."""
        self.free_at_s = max(now_s, self.free_at_s) + size_bytes / self.bytes_per_s
        return self.free_at_s + self.one_way_s


class Relay:
    """Listens in front of one port.

    Attributes:
        port: to dial in place of the other.
    """

    def __init__(self, target_port: int) -> None:
        """Nothing is listened on before `start`."""
        self.port = 0
        self._target_port = target_port
        self._lanes = (Lane(), Lane())
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def set_link(self, *, one_way_ms: float, mbit_per_s: float) -> None:
        """Change both directions; bytes under way arrive as they would have."""
        for lane in self._lanes:
            lane.one_way_s = one_way_ms / 1000
            lane.bytes_per_s = mbit_per_s * 1e6 / 8 if mbit_per_s else float("inf")

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, _HOST, 0, limit=CHUNK_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more, and break what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(
                _HOST, self._target_port, limit=CHUNK_BYTES
            )
            writers.append(far_writer)
            await _until_one_ends(
                _forward(reader, far_writer, self._lanes[0]),
                _forward(far_reader, writer, self._lanes[1]),
            )
        except (OSError, asyncio.CancelledError):
            pass  # nobody there, reset by either side, or the relay stops: both sides are closed
        finally:
            for each in writers:
                each.close()
            self._connections.discard(task)


async def _until_one_ends(*directions: Coroutine[None, None, None]) -> None:
    """Both at once, until either has delivered all it had; errors of either are raised."""
    tasks = [asyncio.create_task(direction) for direction in directions]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: Lane) -> None:
    """One direction of one connection, until it ends; bytes under way are delivered first."""
    clock = asyncio.get_running_loop().time
    under_way: asyncio.Queue[Item] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            arrival_s, data = await under_way.get()
            wait_s = arrival_s - clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async def accept() -> None:
        while data := await reader.read(CHUNK_BYTES):
            under_way.put_nowait((lane.arrival_s(len(data), clock()), data))
            ahead_s = lane.free_at_s - clock() - _BACKLOG_S
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
        under_way.put_nowait((clock() + lane.one_way_s, b""))
        await asyncio.Event().wait()  # the other half says when all has arrived

    await _until_one_ends(deliver(), accept())


async def serve(ports: Sequence[int]) -> None:
    """Relay until stdin ends."""
    relays = [Relay(port) for port in ports]
    for relay in relays:
        await relay.start()
    _say([relay.port for relay in relays])
    control = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(control), sys.stdin
    )
    while line := await control.readline():
        for relay in relays:
            relay.set_link(**json.loads(line))
        _say([])
    for relay in relays:
        await relay.stop()


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """See the module."""
    # Ctrl-C is for whoever started this, and ends its stdin
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # epoll rounds waits up to whole milliseconds, select does not
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(serve([int(port) for port in sys.argv[1:]]))


if __name__ == "__main__":
    main()
