"""bt_p2p.swarm.streams: frames from strangers. This module does not import hivemind."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.errors import WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.limits import MAX_FRAME_BODY_SIZE_BYTES, MAX_FRAME_HEADER_SIZE_BYTES
from bt_p2p.swarm.streams import Frame, read_frame, write_frame

SIZES = struct.Struct("<IQ")
TIMEOUT_S = 5.0


class Sink:
    """The part of a StreamWriter that frames need; keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += bytes(data)

    async def drain(self) -> None:
        await asyncio.sleep(0)


class StuckSink(Sink):
    """A peer that takes nothing."""

    async def drain(self) -> None:
        await asyncio.sleep(3600)


def encode(frame: Frame) -> bytes:
    """The bytes of one frame."""
    sink = Sink()
    asyncio.run(write_frame(sink, frame, timeout_s=TIMEOUT_S))
    return sink.data


async def read_all(
    data: bytes, *, is_ended: bool = True, timeout_s: float = TIMEOUT_S, **limits: int
) -> Frame:
    """One frame from these bytes."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    if is_ended:
        reader.feed_eof()
    return await read_frame(reader, timeout_s=timeout_s, **limits)


def decode(data: bytes, **options) -> Frame:
    """One frame from these bytes, in a loop of its own."""
    return asyncio.run(read_all(data, **options))


@given(
    header=st.dictionaries(
        st.text(max_size=20),
        st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text() | st.binary(),
        max_size=6,
    ),
    body=st.binary(max_size=2000),
)
def test_frames_survive_the_stream(header, body):
    """Header and body, whatever they hold."""
    frame = Frame(header=header, body=body)
    assert frame == decode(encode(frame))


def test_a_body_of_many_writes_arrives_in_order():
    """More than is handed to the daemon at once."""
    body = bytes(range(256)) * 1000
    assert body == decode(encode(Frame(header={}, body=body))).body


def test_frames_follow_each_other():
    """The second starts where the first ends."""

    async def read_two() -> list[Frame]:
        reader = asyncio.StreamReader()
        reader.feed_data(
            b"".join([*map(encode_parts, [Frame(header={"n": 1}, body=b"a"), Frame(header={})])])
        )
        return [await read_frame(reader, timeout_s=TIMEOUT_S) for _ in range(2)]

    def encode_parts(frame: Frame) -> bytes:
        header = wire.pack(frame.header)
        return SIZES.pack(len(header), len(frame.body)) + header + frame.body

    assert [({"n": 1}, b"a"), ({}, b"")] == [
        (frame.header, frame.body) for frame in asyncio.run(read_two())
    ]


@pytest.mark.parametrize(
    ("header_size", "body_size"),
    [
        (MAX_FRAME_HEADER_SIZE_BYTES + 1, 0),
        (2**32 - 1, 0),
        (1, MAX_FRAME_BODY_SIZE_BYTES + 1),
        (1, 2**64 - 1),
    ],
)
def test_announced_sizes_over_a_cap_are_refused_before_reading(header_size, body_size):
    """Nothing of such a frame has to arrive, so nothing of it is kept."""
    with pytest.raises(WireFormatError, match="over the cap"):
        decode(SIZES.pack(header_size, body_size), is_ended=False)


def test_a_caller_may_set_a_lower_cap():
    """As it does for chunks of weights."""
    data = encode(Frame(header={}, body=b"12345"))
    assert b"12345" == decode(data, max_body_size_bytes=5).body
    with pytest.raises(WireFormatError, match="over the cap"):
        decode(data, max_body_size_bytes=4)


def test_every_cut_is_an_incomplete_read():
    """A stream that ends anywhere within a frame never looks whole."""
    data = encode(Frame(header={"ok": True}, body=b"body"))
    for length in range(len(data)):
        with pytest.raises(asyncio.IncompleteReadError):
            decode(data[:length])


def test_a_silent_peer_times_out():
    """Half a frame and no end."""
    data = encode(Frame(header={}, body=b"body"))
    with pytest.raises(TimeoutError):
        decode(data[:-1], is_ended=False, timeout_s=0.02)


def test_a_peer_that_takes_nothing_times_out():
    """Writing has a deadline as well."""
    with pytest.raises(TimeoutError):
        asyncio.run(write_frame(StuckSink(), Frame(header={}, body=b"x"), timeout_s=0.02))


@pytest.mark.parametrize("value", [[], 1, None, "text", b"bytes", {1: 2}], ids=repr)
def test_a_header_that_is_no_map_with_text_keys_is_refused(value):
    """Callers may rely on `header.get`."""
    header = wire.pack(value)
    with pytest.raises(WireFormatError):
        decode(SIZES.pack(len(header), 0) + header)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_else(data):
    """A frame, a WireFormatError, or an incomplete read."""
    with_sizes = SIZES.pack(min(len(data), 40), max(0, len(data) - 40)) + data
    for stream in (data, with_sizes):
        try:
            assert isinstance(decode(stream), Frame)
        except (WireFormatError, asyncio.IncompleteReadError):
            continue
