"""bt_p2p.model.wire."""

from __future__ import annotations

import contextlib
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.errors import WireFormatError
from bt_p2p.model.wire import (
    decode_tensors,
    encode_tensors,
    max_encoded_size_bytes,
    tensors_digest,
)

TENSORS = {"b": torch.arange(6, dtype=torch.float32).view(2, 3), "a": torch.ones(3)}
EXPECTED = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in TENSORS.items()}


def test_tensors_survive_the_wire_in_the_expected_order():
    """Same values, names in the order of `expected`."""
    decoded = decode_tensors(encode_tensors(TENSORS), EXPECTED)
    assert ["b", "a"] == list(decoded)
    assert all(torch.equal(TENSORS[name], decoded[name]) for name in TENSORS)


def test_views_and_transposes_are_encoded_by_value():
    """What the tensor shows, not the memory behind it."""
    transposed = {"b": TENSORS["b"].T}
    decoded = decode_tensors(encode_tensors(transposed), {"b": ((3, 2), torch.float32)})
    assert torch.equal(transposed["b"], decoded["b"])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a": torch.ones(3)}, "wrong names, first 'b'"),
        (TENSORS | {"c": torch.ones(1)}, "wrong names, first 'c'"),
        (TENSORS | {"a": torch.ones(2)}, r"tensor a is torch.float32 \[2\]"),
        (TENSORS | {"a": torch.ones(3, 1)}, r"tensor a is torch.float32 \[3, 1\]"),
        (TENSORS | {"a": torch.ones(3, dtype=torch.float16)}, "tensor a is torch.float16"),
        (TENSORS | {"a": torch.tensor([0.0, float("nan"), 1.0])}, "tensor a is not finite"),
        (TENSORS | {"a": torch.tensor([0.0, float("inf"), 1.0])}, "tensor a is not finite"),
    ],
)
def test_other_tensors_than_the_expected_are_refused(tensors, message):
    """Names, shapes, dtypes and values are all checked."""
    with pytest.raises(WireFormatError, match=message):
        decode_tensors(encode_tensors(tensors), EXPECTED)


def test_size_is_checked_before_parsing():
    """A stranger's gigabytes never reach the parser."""
    data = bytes(max_encoded_size_bytes(EXPECTED) + 1)
    with pytest.raises(WireFormatError, match="over the"):
        decode_tensors(data, EXPECTED)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 7,
        b"<html><body>502 Bad Gateway</body></html>",
        b"\xff" * 8 + b"{}",
        encode_tensors(TENSORS)[:-1],
        encode_tensors(TENSORS)[:20],
        encode_tensors(TENSORS) + b"\x00",
        b"\x80\x04N.",  # a pickle
    ],
)
def test_malformed_bytes_are_refused(data):
    """Always the same typed error."""
    with pytest.raises(WireFormatError):
        decode_tensors(data, EXPECTED)


@pytest.mark.parametrize("dtype", ["F4", "F8_E8M0", "I1024", "BOOL", "C64", "U16"])
def test_odd_dtypes_in_the_header_are_refused(dtype):
    """Formats torch has, will have or never had."""
    header = json.dumps({"a": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    with pytest.raises(WireFormatError):
        decode_tensors(data, {"a": ((1,), torch.float32)})


@given(st.binary(max_size=300), st.integers(0, 200), st.booleans())
def test_no_bytes_escape_the_typed_error(noise, cut, has_prefix):
    """Noise after a piece of a good message: decoded, or refused with WireFormatError."""
    good = encode_tensors(TENSORS)
    data = good[:cut] + noise if has_prefix else noise + good[cut:]
    with contextlib.suppress(WireFormatError):
        decode_tensors(data, EXPECTED)


@given(st.integers(0, len(encode_tensors(TENSORS)) - 1), st.integers(1, 255))
def test_flipped_bytes_are_decoded_or_refused(position, flip):
    """One byte changed anywhere gives another number or the typed error."""
    data = bytearray(encode_tensors(TENSORS))
    data[position] ^= flip
    with contextlib.suppress(WireFormatError):
        decode_tensors(bytes(data), EXPECTED)


def test_digest_covers_names_dtypes_shapes_and_bytes():
    """Any difference shows; the order of the dictionary does not."""
    digests = {
        tensors_digest({"a": torch.zeros(4)}),
        tensors_digest({"b": torch.zeros(4)}),
        tensors_digest({"a": torch.zeros(2, 2)}),
        tensors_digest({"a": torch.zeros(4, dtype=torch.int32)}),
        tensors_digest({"a": torch.tensor([0.0, 0.0, 0.0, -0.0])}),
        tensors_digest({"a": torch.zeros(2), "b": torch.zeros(2)}),
        tensors_digest({}),
    }
    assert 7 == len(digests)
    backwards = dict(reversed(TENSORS.items()))
    assert tensors_digest(TENSORS) == tensors_digest(backwards)


def test_largest_accepted_size_fits_many_small_tensors():
    """The header's room is enough for every real block."""
    tensors = {f"layers.{i}.norm.weight": torch.ones(1) for i in range(200)}
    expected = dict.fromkeys(tensors, ((1,), torch.float32))
    assert len(encode_tensors(tensors)) <= max_encoded_size_bytes(expected)
    assert 200 == len(decode_tensors(encode_tensors(tensors), expected))
