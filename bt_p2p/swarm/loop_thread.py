"""An event loop of its own thread, and waits on it with a deadline. Does not import hivemind."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from bt_p2p.swarm.live_tasks import keep_tasks_alive

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LoopThread:
    """An asyncio loop in a daemon thread, for RPC while the main thread trains."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        keep_tasks_alive(self._loop)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_log_quietly)
        self._loop.run_forever()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin a coroutine on the loop; the caller waits on the future as it likes."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout_s: float) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            TimeoutError: after `timeout_s`; the coroutine is cancelled.
        """
        future = self.start(coroutine)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def stop(self, *, timeout_s: float) -> None:
        """Cancel what is running and end the thread; later calls do nothing."""
        if not self._thread.is_alive():
            return
        try:
            self.run(_cancel_all(), timeout_s=timeout_s)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout_s)
            if not self._thread.is_alive():
                self._loop.close()


def _log_quietly(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Streams that strangers break end in callbacks that nobody waits for."""
    logger.debug("rpc loop: %s", context.get("exception") or context.get("message"))


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
