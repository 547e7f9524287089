"""bt_p2p.protocol.wire: msgpack from strangers."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.errors import ProtocolError, WireFormatError
from bt_p2p.protocol import wire

CAP = 4096
VALUE = {"text": "ä", "bytes": b"\xff", "list": [1, -2, 0.5, None, True], "map": {"a": {"b": []}}}


def test_plain_values_survive() -> None:
    """Text and bytes stay apart."""
    assert VALUE == wire.unpack_map(wire.pack(VALUE), max_size_bytes=CAP)


def test_messages_over_the_cap_are_refused() -> None:
    """At the cap is still fine."""
    data = wire.pack(b"x" * 10)
    assert b"x" * 10 == wire.unpack(data, max_size_bytes=len(data))
    with pytest.raises(WireFormatError, match="12 bytes is over the cap of 11"):
        wire.unpack(data, max_size_bytes=11)


@pytest.mark.parametrize("code", [-128, -2, 0, 5, 127])
def test_extension_types_are_refused(code: int) -> None:
    """hivemind unpickles some of its own; we know none."""
    data = msgpack.packb({"a": [msgpack.ExtType(5, b"abcd")]})
    data = data.replace(b"\xd6\x05", b"\xd6" + code.to_bytes(1, "big", signed=True))
    with pytest.raises(WireFormatError, match="extension type"):
        wire.unpack(data, max_size_bytes=CAP)


@pytest.mark.parametrize("nested", [False, True])
def test_timestamps_are_refused_like_other_extensions(nested: bool) -> None:
    """msgpack decodes this one type without asking."""
    timestamp = msgpack.Timestamp(1, 2)
    data = msgpack.packb({"a": [{"b": timestamp}]} if nested else timestamp)
    with pytest.raises(WireFormatError, match="timestamps are not allowed"):
        wire.unpack(data, max_size_bytes=CAP)


@pytest.mark.parametrize("depth", [17, 100, 900, 1100, 3000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"])
def test_deep_nesting_is_refused(opening: bytes, depth: int) -> None:
    """Lists and maps that only exist to exhaust a stack."""
    with pytest.raises(WireFormatError):
        wire.unpack(opening * depth + b"\x01", max_size_bytes=100_000)


def test_modest_nesting_is_fine() -> None:
    """Our own messages are a few levels deep."""
    assert [[[[[1]]]]] == wire.unpack(b"\x91" * 5 + b"\x01", max_size_bytes=CAP)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="unused type"),
        pytest.param(b"\x01\x02", id="more than one value"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="list of four thousand million"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="map of four thousand million"),
        pytest.param(b"\xa1\xff", id="text that is not UTF-8"),
        pytest.param(b"\x81\x01\x02", id="number as a key"),
        pytest.param(b"\x81\x90\x02", id="list as a key"),
        pytest.param(wire.pack(VALUE)[:-1], id="cut short"),
    ],
)
def test_other_bytes_are_malformed(data: bytes) -> None:
    """Never another exception, never a large allocation."""
    with pytest.raises(WireFormatError, match="not valid msgpack"):
        wire.unpack(data, max_size_bytes=CAP)


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", [1], {b"key": 1}])
def test_what_is_no_map_with_text_keys_is_refused(value: Any) -> None:
    """Headers are maps."""
    with pytest.raises(WireFormatError, match="not a map with text keys"):
        wire.unpack_map(wire.pack(value), max_size_bytes=CAP)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_protocol_errors(data: bytes) -> None:
    """Strangers send anything."""
    try:
        value = wire.unpack_map(data, max_size_bytes=CAP)
    except ProtocolError:
        return
    assert isinstance(value, dict)


@given(st.data())
def test_mutated_messages_raise_only_protocol_errors(data: st.DataObject) -> None:
    """Nor does almost valid msgpack."""
    packed = bytearray(wire.pack(VALUE))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    message = ""
    try:
        wire.unpack_map(bytes(packed), max_size_bytes=CAP)
    except ProtocolError as error:
        message = str(error)
    assert "\n" not in message
