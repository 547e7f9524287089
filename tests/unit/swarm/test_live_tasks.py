"""A task that only waits is not taken by the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from bt_p2p.swarm.live_tasks import keep_tasks_alive


class Answer:
    """As a stream's reader: held by who waits for it, and by nobody else."""

    def __init__(self) -> None:
        self.arrives = asyncio.get_running_loop().create_future()


async def wait_for_an_answer(answers: list[weakref.ref[Answer]]) -> None:
    """What calls to the daemon do."""
    answer = Answer()
    answers.append(weakref.ref(answer))
    await answer.arrives


async def is_kept() -> bool:
    """Whether a task survives a collection in the moment in which it waits."""
    answers: list[weakref.ref[Answer]] = []
    asyncio.create_task(wait_for_an_answer(answers))  # noqa: RUF006 - this is the fault
    await asyncio.sleep(0)
    gc.collect()
    answer = answers[0]()
    if answer is None:
        return False
    answer.arrives.set_result(None)
    return True


@pytest.mark.parametrize("is_mended", [False, True])
def test_waiting_tasks_are_held(is_mended: bool) -> None:
    """Without the mend it is gone, which shows that the mend is needed."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # the lost task complains
    if is_mended:
        keep_tasks_alive(loop)

    assert is_mended == loop.run_until_complete(is_kept())
    loop.close()
