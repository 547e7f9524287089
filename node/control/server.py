"""The node's end of the control socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from bt_p2p.clock import Clock
from bt_p2p.swarm.loop_thread import LoopThread
from node.control.messages import (
    ANSWER_TIMEOUT_S,
    MAX_CONNECTIONS,
    MAX_LINE_BYTES,
    Answer,
    Request,
)
from node.control.socket import SOCKET_NAME, listen, user_at_other_end
from node.manners.manners import Manners
from node.snapshot import NodeSnapshot

logger = logging.getLogger(__name__)


class ControlServer:
    """Obeys the commands of the node's own user, in a thread of its own."""

    def __init__(
        self,
        state_dir: Path,
        manners: Manners,
        look: Callable[[], NodeSnapshot],
        clock: Clock,
        *,
        user_id: int | None = None,
    ) -> None:
        """Listen nowhere yet.

        Args:
            state_dir: where the socket is; its lock is held.
            manners: what commands change.
            look: the node at this moment.
            clock: wall clock, for snoozes.
            user_id: whose commands are obeyed; None is the user of this process.
        """
        self._state_dir = state_dir
        self._manners = manners
        self._look = look
        self._clock = clock
        self._user_id = os.geteuid() if user_id is None else user_id
        self._loop: LoopThread | None = None
        self._server: asyncio.AbstractServer | None = None
        self._serving: set[asyncio.Task[object]] = set()

    def start(self) -> None:
        """Begin to listen; without a socket the node goes on, and takes no commands."""
        try:
            listening = listen(self._state_dir)
            self._loop = LoopThread("control")
            self._server = self._loop.run(
                asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_LINE_BYTES),
                timeout_s=ANSWER_TIMEOUT_S,
            )
        except OSError as exc:  # a time-out, too
            logger.warning("no control socket in %s, commands will fail: %r", self._state_dir, exc)

    def stop(self, *, timeout_s: float) -> None:
        """Listen no more; idempotent."""
        if self._loop is None:
            return
        (self._state_dir / SOCKET_NAME).unlink(missing_ok=True)
        try:
            self._loop.run(self._close(), timeout_s=timeout_s)
            self._loop.stop(timeout_s=timeout_s)
        except TimeoutError:
            logger.warning("the control socket did not close in time")
        self._loop = None

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One line after another, until the other end closes or is too slow."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            user_id = user_at_other_end(writer.get_extra_info("socket"))
            if user_id != self._user_id or len(self._serving) > MAX_CONNECTIONS:
                logger.warning("a control connection of user %d is refused", user_id)
                return
            while True:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    line = await _read_line(reader)
                    if not line:
                        return
                    writer.write(self.answer(line).model_dump_json().encode() + b"\n")
                    await writer.drain()
        except (TimeoutError, OSError) as exc:
            logger.debug("a control connection ended: %r", exc)
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def answer(self, line: bytes) -> Answer:
        """Do what a line asks for, if it can be read."""
        try:
            request = Request.model_validate_json(line)
        except ValidationError as exc:
            error = exc.errors()[0]
            where = ".".join(map(str, error["loc"])) or "the line"
            return self._state().model_copy(
                update={"error": f"{where}: {error['msg']}; this node knows other commands"[:300]}
            )
        problem = self._obey(request)
        return self._state().model_copy(update={"problem": problem})

    def _obey(self, request: Request) -> str:
        """Do it; returns what is not quite right."""
        match request.op:
            case "pause":
                return self._manners.ask(is_paused=True, snooze_until_s=None)
            case "resume":
                return self._manners.ask(is_paused=False, snooze_until_s=None, is_finishing=False)
            case "finish":
                return self._manners.ask(is_finishing=True)
            case "snooze":
                until_s = self._clock.now_s() + (request.duration_s or 0.0)
                return self._manners.ask(is_paused=False, snooze_until_s=until_s)
            case "look":
                return ""

    def _state(self) -> Answer:
        snapshot, pause = self._look(), self._manners.pause
        return Answer(
            pid=os.getpid(),
            state=snapshot.state,
            block=snapshot.block,
            pause_reason="" if pause is None else pause.reason.value,
            pause_words="" if pause is None else pause.words,
            pause_until_s=None if pause is None else pause.until_s,
            is_finishing=self._manners.is_finishing,
        )


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """A line with its end; empty when there is none, or it is over the cap."""
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
