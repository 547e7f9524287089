"""What one peer is asked at the same moment travels in one frame, and so do the answers.

A small request costs both daemons and both programs more for its frame than for what it holds. So a
client that has many texts under way, or asks one peer for several blocks, sends their requests together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bt_p2p.errors import PeerError, ProtocolError, WireFormatError
from bt_p2p.protocol.limits import (
    MAX_BUNDLE_FRAMES,
    MAX_FRAME_BODY_SIZE_BYTES,
)
from bt_p2p.swarm.streams import Frame

BUNDLE = "bundle"
"""The operation of a frame that holds others."""
MAX_SMALL_BODY_SIZE_BYTES = 16 * 1024
"""Larger requests travel alone."""
GATHER_S = 0.001
"""A request waits so long for others while its peer is busy with earlier ones."""

AskPeer = Callable[[Frame, float], Awaitable[Frame]]
"""Sends a frame to a peer and returns its answer; the number is the timeout in seconds."""


def bundle(frames: Sequence[Frame]) -> Frame:
    """One frame that holds others.

    Raises:
        WireFormatError: together they are over the cap.
    """
    size_bytes = sum(len(frame.body) for frame in frames)
    if size_bytes > MAX_FRAME_BODY_SIZE_BYTES:
        raise WireFormatError(f"{len(frames)} frames of {size_bytes} bytes do not fit into one")
    parts = [[frame.header, len(frame.body)] for frame in frames]
    return Frame(
        header={"ok": True, "op": BUNDLE, "parts": parts},
        body=b"".join(frame.body for frame in frames),
    )


def unbundle(frame: Frame) -> list[Frame]:
    """The frames that a stranger put into one.

    Raises:
        WireFormatError: a part is malformed, or their sizes do not fit the body.
    """
    parts = frame.header.get("parts")
    if not isinstance(parts, list) or not 1 <= len(parts) <= MAX_BUNDLE_FRAMES:
        raise WireFormatError(f"a bundle holds 1 to {MAX_BUNDLE_FRAMES} frames")
    frames: list[Frame] = []
    offset = 0
    for part in parts:
        match part:
            case [dict(header), int(size)] if type(size) is int and size >= 0:
                frames.append(Frame(header=header, body=frame.body[offset : offset + size]))
                offset += size
            case _:
                raise WireFormatError(f"part {part!r:.60} of a bundle is not a header and a size")
    if offset != len(frame.body):
        raise WireFormatError(f"a bundle of {len(frame.body)} bytes has parts of {offset}")
    return frames


@dataclass(kw_only=True, slots=True, eq=False)
class _Asked:
    frame: Frame
    timeout_s: float
    answer: asyncio.Future[Frame] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Outbox:
    """Requests to one peer, on their way together; use it on one event loop."""

    def __init__(self, ask_peer: AskPeer) -> None:
        """Wrap what sends one frame."""
        self._ask_peer = ask_peer
        self._waiting: list[_Asked] = []
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits or is under way."""
        return not self._waiting and not self._sending

    async def ask(self, frame: Frame, *, timeout_s: float) -> Frame:
        """The answer to one request, which may be a refusal.

        It leaves at once if nothing else is under way to this peer, together with what is asked of it
        in the same turn of the event loop; else it waits for others for `GATHER_S`.

        Raises:
            PeerError: as whoever sends does, for all requests in the frame.
            WireFormatError: the answer is malformed.
        """
        asked = _Asked(frame=frame, timeout_s=timeout_s)
        if not self._waiting:
            loop = asyncio.get_running_loop()
            if self._sending:
                loop.call_later(GATHER_S, self._send)
            else:
                loop.call_soon(self._send)
        self._waiting.append(asked)
        return await asked.answer

    def _send(self) -> None:
        waiting = [asked for asked in self._waiting if not asked.answer.cancelled()]
        self._waiting = []
        for start in range(0, len(waiting), MAX_BUNDLE_FRAMES):
            self._start(waiting[start : start + MAX_BUNDLE_FRAMES])

    def _start(self, group: list[_Asked]) -> None:
        task = asyncio.create_task(self._carry(group))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        num_waiting = len(group)

        def note_end(_answer: asyncio.Future[Frame]) -> None:
            nonlocal num_waiting
            num_waiting -= 1
            if not num_waiting:  # what was given up by all is given up at the peer
                task.cancel()

        for asked in group:
            asked.answer.add_done_callback(note_end)

    async def _carry(self, group: Sequence[_Asked]) -> None:
        timeout_s = max(asked.timeout_s for asked in group)
        try:
            answer = await self._send_now([asked.frame for asked in group], timeout_s)
            answers = [answer] if len(group) == 1 else _answers(answer, len(group))
            for asked, answer in zip(group, answers, strict=True):
                if not asked.answer.done():
                    asked.answer.set_result(answer)
        except (PeerError, ProtocolError) as exc:
            for asked in group:
                if not asked.answer.done():
                    asked.answer.set_exception(exc)
        finally:
            for asked in group:
                asked.answer.cancel()

    async def _send_now(self, frames: Sequence[Frame], timeout_s: float) -> Frame:
        """Nothing is under way any more when the answer is there: what is asked next leaves at once."""
        try:
            together = frames[0] if len(frames) == 1 else bundle(frames)
            return await self._ask_peer(together, timeout_s)
        finally:
            self._sending.discard(asyncio.current_task())


def _answers(frame: Frame, count: int) -> list[Frame]:
    """One for each request; a bundle that was refused as a whole is a refusal of each."""
    if frame.header.get("ok") is not True:
        return [frame] * count
    answers = unbundle(frame)
    if len(answers) != count:
        raise WireFormatError(f"{len(answers)} answers to {count} requests")
    return answers
