"""The upload cap: how fast bytes leave, and how many. This module does not import hivemind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from bt_p2p.clock import SystemClock
from bt_p2p.errors import BusyError
from bt_p2p.swarm.streams import Frame, read_frame, write_frame
from bt_p2p.swarm.token_bucket import BURST_S, TokenBucket
from bt_p2p.swarm.upload import (
    UploadCap,
    limit_upload,
    pieces,
    refuse_if_used_up,
    upload_wait_s,
)
from bt_p2p.testing.clock import ManualClock

RATES = [10_000, 500_000, 50_000_000]


@pytest.fixture(autouse=True)
def no_cap():
    """Other tests run without one."""
    yield
    limit_upload(None)


@pytest.mark.parametrize("bytes_per_s", RATES)
def test_a_busy_line_carries_what_is_allowed_within_a_tenth(bytes_per_s):
    """Three streams write as fast as they may, in messages of any size, for a minute."""
    cap = UploadCap(ManualClock(), bytes_per_s=bytes_per_s)
    limit_upload(cap)
    clock, chance = cap._clock, random.Random(1)
    leaves: list[tuple[float, int]] = []
    free_at_s = [0.0] * 3  # when each stream has written its last piece
    while min(free_at_s) < 60:
        stream = free_at_s.index(min(free_at_s))
        clock.advance(max(0.0, free_at_s[stream] - clock.monotonic_s()))
        message = bytes(chance.choice([40, 5_000, 200_000]))
        for piece in list(pieces(message))[:20]:
            wait_s = upload_wait_s(len(piece))
            free_at_s[stream] = clock.monotonic_s() + wait_s
            leaves.append((free_at_s[stream], len(piece)))
            if wait_s:
                break
    for start_s in range(0, 50, 5):
        sent = sum(size for at_s, size in leaves if start_s <= at_s < start_s + 10)
        assert 0.9 * 10 * bytes_per_s <= sent <= 1.1 * 10 * bytes_per_s


def test_an_idle_line_lets_a_small_answer_through_at_once():
    """What was saved up in a quarter of a second."""
    bucket = TokenBucket(bytes_per_s=100_000)
    paid_s, wait_s = bucket.take(float("-inf"), int(100_000 * BURST_S), now_s=1000.0)
    assert 0 == wait_s
    _, wait_s = bucket.take(paid_s, 50_000, now_s=1000.0)
    assert wait_s == pytest.approx(0.5)


@pytest.mark.parametrize("size_bytes", [1, 1024, 70_000, 500_000])
def test_pieces_are_the_whole_message(size_bytes):
    """With and without a cap; small enough that the line flows evenly."""
    message = random.Random(2).randbytes(size_bytes)
    assert [message] == [bytes(piece) for piece in pieces(message)]
    limit_upload(UploadCap(ManualClock(), bytes_per_s=200_000))
    cut = [bytes(piece) for piece in pieces(message)]
    assert message == b"".join(cut)
    assert 10_000 >= max(map(len, cut))


def in_a_child(work: Callable[[], object]) -> int:
    """Do it in a forked process, which ends with it; returns its process id."""
    child = os.fork()
    if child == 0:
        try:
            gc.disable()  # what other tests have left may wait for threads that are not forked
            work()
            os._exit(0)
        finally:
            os._exit(1)  # and not go on with the tests
    return child


def ended_by(child: int) -> int:
    """Its exit code, or the signal that killed it as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_processes_share_one_cap():
    """The child's bytes delay the parent's, and count for the same day."""
    cap = UploadCap(SystemClock(), bytes_per_s=1000)
    assert 0 == ended_by(in_a_child(lambda: cap.take(60_000)))
    assert 60_000 == cap.sent_bytes
    assert 50 < cap.take(1)


def test_a_killed_process_leaves_no_lock():
    """It is killed again and again while it takes; the parent goes on each time."""
    cap = UploadCap(SystemClock(), bytes_per_s=1e12)

    def take_for_ever() -> None:
        while True:
            cap.take(1)

    for _ in range(5):
        before = cap.sent_bytes
        child = in_a_child(take_for_ever)
        deadline_s = time.monotonic() + 30
        while cap.sent_bytes == before and time.monotonic() < deadline_s:
            os.sched_yield()  # or this process has the lock most of the time
        os.kill(child, signal.SIGKILL)
        assert -signal.SIGKILL == ended_by(child)
        assert before < cap.sent_bytes


def test_a_used_up_day_refuses_what_is_new():
    """Until the count begins anew."""
    cap = UploadCap(ManualClock(), max_bytes=100)
    refuse_if_used_up()
    limit_upload(cap)
    upload_wait_s(99)
    refuse_if_used_up()
    upload_wait_s(1)
    with pytest.raises(BusyError, match="upload of the day"):
        refuse_if_used_up()
    cap.set_sent_bytes(0)
    refuse_if_used_up()


async def over_a_socket(frames: list[Frame], *, timeout_s: float) -> float:
    """Frames over real sockets, one stream each at the same time; seconds until all have come."""
    received = []

    async def serve(reader, writer) -> None:
        received.append(await read_frame(reader, timeout_s=60))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()

    async def send(frame: Frame) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        await write_frame(writer, frame, timeout_s=timeout_s)
        await reader.read()
        writer.close()

    started_s = time.monotonic()
    await asyncio.gather(*map(send, frames))
    took_s = time.monotonic() - started_s
    server.close()
    assert sorted(frame.body for frame in frames) == sorted(frame.body for frame in received)
    return took_s


@pytest.mark.slow
def test_streams_together_are_not_faster_than_the_cap():
    """The deadline of a write does not count the node's own waiting."""
    limit_upload(UploadCap(SystemClock(), bytes_per_s=400_000))
    frames = [Frame(header={}, body=bytes([index]) * 200_000) for index in range(3)]
    took_s = asyncio.run(over_a_socket(frames, timeout_s=1.0))
    assert 600_000 / took_s <= 1.1 * 400_000 + 400_000 * BURST_S / took_s
