"""Frames on a binary stream between two peers: a small msgpack header and a raw body.

    u32 header size | u64 body size | header: msgpack map | body: bytes      (little endian)

Sizes are capped before anything is read. Every read and write has a deadline, since libp2p does not
tell a lost connection from a slow one.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bt_p2p.errors import WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.limits import MAX_FRAME_BODY_SIZE_BYTES, MAX_FRAME_HEADER_SIZE_BYTES
from bt_p2p.swarm.upload import pieces, upload_wait_s

_SIZES = struct.Struct("<IQ")
_WRITE_CHUNK_BYTES = 1 << 16
_READ_CHUNK_BYTES = 1 << 18

Take = Callable[[int], None]
"""Makes room for so many bytes, or raises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One message."""

    header: dict[str, Any]
    body: bytes = b""


async def write_frame(writer: asyncio.StreamWriter, frame: Frame, *, timeout_s: float) -> None:
    """Send one frame and wait until it is on its way.

    Raises:
        TimeoutError: the other side does not take it.
        OSError: the connection is gone.
    """
    header = wire.pack(frame.header)
    head = _SIZES.pack(len(header), len(frame.body)) + header
    body = memoryview(frame.body)
    async with asyncio.timeout(timeout_s) as deadline:
        await _write(writer, head + body[:_WRITE_CHUNK_BYTES], deadline)  # wakes the daemon once
        for offset in range(_WRITE_CHUNK_BYTES, len(body), _WRITE_CHUNK_BYTES):
            await _write(writer, body[offset : offset + _WRITE_CHUNK_BYTES], deadline)


async def _write(
    writer: asyncio.StreamWriter, chunk: bytes | memoryview, deadline: asyncio.Timeout
) -> None:
    """Within the node's upload cap, for which the other side is not to blame."""
    for piece in pieces(chunk):
        wait_s = upload_wait_s(len(piece))
        if wait_s:
            deadline.reschedule((deadline.when() or 0.0) + wait_s)
            await asyncio.sleep(wait_s)
        writer.write(piece)
        await writer.drain()


async def read_frame(
    reader: asyncio.StreamReader,
    *,
    timeout_s: float,
    max_body_size_bytes: int = MAX_FRAME_BODY_SIZE_BYTES,
    take: Take | None = None,
) -> Frame:
    """Receive one frame.

    Args:
        reader: of the stream.
        timeout_s: for all of it.
        max_body_size_bytes: cap of the body.
        take: asked for room before each part of the body is read; what it raises ends the reading.

    Raises:
        TimeoutError: it is not complete in time.
        asyncio.IncompleteReadError: the stream ended before or within it.
        WireFormatError: over a cap, or its header is malformed.
    """
    async with asyncio.timeout(timeout_s):
        header_size, body_size = _SIZES.unpack(await reader.readexactly(_SIZES.size))
        if header_size > MAX_FRAME_HEADER_SIZE_BYTES:
            raise WireFormatError(f"frame header of {header_size} bytes is over the cap")
        if body_size > max_body_size_bytes:
            raise WireFormatError(f"frame body of {body_size} bytes is over the cap")
        header = wire.unpack_map(
            await reader.readexactly(header_size), max_size_bytes=MAX_FRAME_HEADER_SIZE_BYTES
        )
        body = await _read_body(reader, body_size, take)
    return Frame(header=header, body=body)


async def _read_body(reader: asyncio.StreamReader, size_bytes: int, take: Take | None) -> bytes:
    """In parts, so that a size that is only claimed takes no room."""
    if take is None:
        return await reader.readexactly(size_bytes)
    body = bytearray()
    while len(body) < size_bytes:
        part_bytes = min(_READ_CHUNK_BYTES, size_bytes - len(body))
        take(part_bytes)
        body += await reader.readexactly(part_bytes)
    return bytes(body)
