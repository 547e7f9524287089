"""Keeps tasks of an event loop alive until they are done.

A loop holds its tasks weakly, and a stream holds its reader weakly: a task that waits for an answer
of the daemon is held by nobody but itself. When the garbage collector comes by in that moment, it
is gone, and whoever asked never hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def keep_tasks_alive(loop: asyncio.AbstractEventLoop) -> None:
    """Hold on to every task of a loop, from now on."""
    tasks: set[asyncio.Task[Any]] = set()

    def make_task(
        of_loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **kwargs: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=of_loop, **kwargs)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    loop.set_task_factory(make_task)  # type: ignore[arg-type]  # typeshed wants a generator's too
