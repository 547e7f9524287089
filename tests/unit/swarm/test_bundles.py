"""bt_p2p.swarm.bundles: requests to one peer that share a frame. This module does not import hivemind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.errors import PeerTimeoutError, WireFormatError
from bt_p2p.protocol.limits import MAX_BUNDLE_FRAMES, MAX_FRAME_BODY_SIZE_BYTES
from bt_p2p.swarm.bundles import Outbox, bundle, unbundle
from bt_p2p.swarm.streams import Frame

TIMEOUT_S = 5.0

FRAMES = st.builds(
    lambda number, body: Frame(header={"n": number}, body=body),
    st.integers(0, 2**40),
    st.binary(max_size=50),
)


class Peer:
    """Answers each request with its own body, when it is let."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.num_cancelled = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, frame: Frame, timeout_s: float) -> Frame:
        assert timeout_s == TIMEOUT_S
        self.sent.append(frame)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if "parts" not in frame.header:
            return frame
        return bundle([Frame(header=each.header, body=each.body) for each in unbundle(frame)])

    @property
    def group_sizes(self) -> list[int]:
        """How many requests each frame held."""
        return [len(frame.header.get("parts", [None])) for frame in self.sent]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds."""
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never held")


def request(number: int) -> Frame:
    return Frame(header={"n": number}, body=bytes([number]))


@given(st.lists(FRAMES, min_size=1, max_size=MAX_BUNDLE_FRAMES))
def test_frames_come_out_as_they_went_in(frames) -> None:
    assert frames == unbundle(bundle(frames))


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        (None, b""),
        ([], b""),
        ([[{}, 0]] * (MAX_BUNDLE_FRAMES + 1), b""),
        ([[{}, -1], [{}, 2]], b"a"),
        ([[{}, True]], b"a"),
        ([[{}, 2]], b"a"),
        ([[{}, 0]], b"a"),
        ([["no header", 1]], b"a"),
        ([[{}]], b""),
    ],
    ids=["none", "empty", "many", "negative", "bool", "long", "short", "header", "size"],
)
def test_a_malformed_bundle_is_refused(parts, body) -> None:
    with pytest.raises(WireFormatError, match="bundle"):
        unbundle(Frame(header={"parts": parts}, body=body))


def test_what_does_not_fit_into_a_frame_is_not_bundled() -> None:
    half = Frame(header={}, body=bytes(MAX_FRAME_BODY_SIZE_BYTES // 2 + 1))
    with pytest.raises(WireFormatError, match="do not fit"):
        bundle([half, half])


def test_requests_of_one_moment_share_a_frame() -> None:
    """Each gets its own answer; a lone one is sent as it is, and more than fit in several frames."""

    async def ask() -> list[int]:
        peer = Peer()
        outbox = Outbox(peer.ask)
        assert request(0) == await outbox.ask(request(0), timeout_s=TIMEOUT_S)
        numbers = range(MAX_BUNDLE_FRAMES + 2)
        answers = await asyncio.gather(
            *(outbox.ask(request(number), timeout_s=TIMEOUT_S) for number in numbers)
        )
        assert [request(number) for number in numbers] == answers
        return peer.group_sizes

    assert [1, MAX_BUNDLE_FRAMES, 2] == asyncio.run(ask())


def test_while_a_peer_is_busy_requests_gather() -> None:
    """Though they come in different turns of the loop; the first did not wait for them."""

    async def ask() -> list[int]:
        peer = Peer()
        peer.may_answer.clear()
        outbox = Outbox(peer.ask)
        asking = [asyncio.create_task(outbox.ask(request(0), timeout_s=TIMEOUT_S))]
        await until(lambda: len(peer.sent) == 1)
        for number in (1, 2):
            asking.append(asyncio.create_task(outbox.ask(request(number), timeout_s=TIMEOUT_S)))
            await asyncio.sleep(0)
        await until(lambda: len(peer.sent) == 2)
        peer.may_answer.set()
        await asyncio.gather(*asking)
        await until(lambda: outbox.is_empty)
        return peer.group_sizes

    assert [1, 2] == asyncio.run(ask())


def test_what_is_asked_after_an_answer_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is under way then, so there is nothing to wait for others with."""
    monkeypatch.setattr("bt_p2p.swarm.bundles.GATHER_S", 60.0)

    async def story() -> list[int]:
        peer = Peer()
        outbox = Outbox(peer.ask)
        async with asyncio.timeout(TIMEOUT_S):
            for number in range(3):
                await outbox.ask(request(number), timeout_s=TIMEOUT_S)
        return peer.group_sizes

    assert [1, 1, 1] == asyncio.run(story())


def test_a_failure_is_that_of_every_request_in_the_frame() -> None:
    async def fail(frame: Frame, timeout_s: float) -> Frame:
        raise PeerTimeoutError("too late", peer_id="peer")

    async def ask() -> list[Frame | BaseException]:
        outbox = Outbox(fail)
        asking = (outbox.ask(request(number), timeout_s=TIMEOUT_S) for number in range(3))
        return await asyncio.gather(*asking, return_exceptions=True)

    assert [PeerTimeoutError] * 3 == [type(error) for error in asyncio.run(ask())]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Frame(header={"ok": False, "error": "busy"}), {"ok": False, "error": "busy"}),
        (bundle([request(0)]), WireFormatError),
    ],
    ids=["refused", "too few"],
)
def test_a_bundle_that_is_not_answered_part_by_part(answer, expected) -> None:
    """Refused as a whole, each part is refused; another number of answers is malformed."""

    async def reply(frame: Frame, timeout_s: float) -> Frame:
        return answer

    async def ask() -> list[object]:
        outbox = Outbox(reply)
        asking = (outbox.ask(request(number), timeout_s=TIMEOUT_S) for number in range(2))
        found = await asyncio.gather(*asking, return_exceptions=True)
        return [each.header if isinstance(each, Frame) else type(each) for each in found]

    assert [expected] * 2 == asyncio.run(ask())


def test_who_gives_up_does_not_disturb_the_others() -> None:
    """When all have, the peer is told by the end of the stream."""

    async def ask() -> None:
        peer = Peer()
        peer.may_answer.clear()
        outbox = Outbox(peer.ask)
        asking = [
            asyncio.create_task(outbox.ask(request(number), timeout_s=TIMEOUT_S))
            for number in range(2)
        ]
        await until(lambda: len(peer.sent) == 1)
        asking[0].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert peer.num_cancelled == 0
        asking[1].cancel()
        await until(lambda: outbox.is_empty)
        assert peer.num_cancelled == 1

    asyncio.run(ask())
