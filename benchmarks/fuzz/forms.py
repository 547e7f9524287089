"""Messages as trees that can be changed, and back to bytes that may lie about themselves."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

Tree = Any
"""A leaf, a list of trees, or `Pairs`."""

_FRAME_SIZES = struct.Struct("<IQ")
_SAFETENSORS_SIZE = struct.Struct("<Q")
_LIE_SHARE = 0.15
_MAX_SIZE_FIELD = 2**64 - 1


class Pairs(list[list[Tree]]):
    """A map: lists of a key and a value, so that keys may repeat."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A leaf that is written as it stands, valid or not."""

    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """How the messages of one decoder are built."""

    split: Callable[[bytes], tuple[Tree, bytes]]
    """A valid message as a tree, and what follows it. Raises ValueError for what is none."""
    join: Callable[[Tree, bytes, random.Random], bytes]
    """The message of a tree; sizes in it are wrong now and then."""
    odd: tuple[Tree, ...]
    """Leaves that no honest peer sends."""


def _pairs(found: list[tuple[Tree, Tree]]) -> Pairs:
    return Pairs([key, value] for key, value in found)


def _read_msgpack(data: bytes) -> Tree:
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=False,
            object_pairs_hook=_pairs,
            ext_hook=msgpack.ExtType,
        )
    except (msgpack.exceptions.UnpackException, RecursionError, TypeError) as exc:
        raise ValueError("not msgpack") from exc


def _write_msgpack(tree: Tree) -> bytes:
    packer = msgpack.Packer(use_bin_type=True)
    match tree:
        case Raw():
            return tree.data
        case Pairs():
            items = b"".join(_write_msgpack(item) for pair in tree for item in pair)
            return bytes(packer.pack_map_header(len(tree))) + items
        case list():
            head = bytes(packer.pack_array_header(len(tree)))
            return head + b"".join(map(_write_msgpack, tree))
    return bytes(packer.pack(tree))


def _read_json(data: bytes) -> Tree:
    try:
        return json.loads(data, object_pairs_hook=_pairs)
    except RecursionError as exc:
        raise ValueError("too deep") from exc


def _write_json(tree: Tree) -> bytes:
    match tree:
        case Raw():
            return tree.data
        case Pairs():
            items = (_write_json(key) + b":" + _write_json(value) for key, value in tree)
            return b"{" + b",".join(items) + b"}"
        case list():
            return b"[" + b",".join(map(_write_json, tree)) + b"]"
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _size_field(size: int, limit: int, rng: random.Random) -> int:
    """A size, or a lie about it."""
    if rng.random() >= _LIE_SHARE:
        return size
    lie = rng.choice((0, 1, size - 1, size + 1, 2 * size, 2**16, 2**31 - 1, 2**31, 2**63, limit))
    return min(max(0, lie), limit)


def _split_frame(data: bytes) -> tuple[Tree, bytes]:
    if len(data) < _FRAME_SIZES.size:
        raise ValueError("no frame")
    header_size, _ = _FRAME_SIZES.unpack_from(data)
    end = _FRAME_SIZES.size + header_size
    return _read_msgpack(data[_FRAME_SIZES.size : end]), data[end:]


def _join_frame(tree: Tree, rest: bytes, rng: random.Random) -> bytes:
    header = _write_msgpack(tree)
    sizes = _FRAME_SIZES.pack(
        _size_field(len(header), 2**32 - 1, rng), _size_field(len(rest), _MAX_SIZE_FIELD, rng)
    )
    return sizes + header + rest


def _split_safetensors(data: bytes) -> tuple[Tree, bytes]:
    if len(data) < _SAFETENSORS_SIZE.size:
        raise ValueError("no safetensors")
    (size,) = _SAFETENSORS_SIZE.unpack_from(data)
    end = _SAFETENSORS_SIZE.size + size
    return _read_json(data[_SAFETENSORS_SIZE.size : end]), data[end:]


def _join_safetensors(tree: Tree, rest: bytes, rng: random.Random) -> bytes:
    header = _write_json(tree)
    return _SAFETENSORS_SIZE.pack(_size_field(len(header), _MAX_SIZE_FIELD, rng)) + header + rest


def _split_text(data: bytes) -> tuple[Tree, bytes]:
    return data.decode("utf-8").split("/"), b""


def _join_text(tree: Tree, _rest: bytes, _rng: random.Random) -> bytes:
    parts = tree if isinstance(tree, list) else [tree]
    return b"/".join(
        part.data if isinstance(part, Raw) else str(part).encode("utf-8", "surrogatepass")
        for part in parts
    )


def _nested_extensions(code: int, depth: int) -> bytes:
    data = b"\x01"
    for _ in range(depth):
        data = msgpack.packb(msgpack.ExtType(code, data))
    return data


_NUMBERS = (
    *(-1, 0, 1, 255, 256, 2**31, 2**32, 2**40, 2**53 + 1, 2**63 - 1, -(2**31), -(2**63)),
    *(0.5, -0.0, 1e308, -1e308, 5e-324),
    *(True, False, None),
)
_TEXTS = (
    *("", " ", "\0", "a" * 300, "../../x", "%s%n", "1e999"),
    *("\U0001d518", "\uff11\uff12", "\u202e", "\ud800"),
)
_MSGPACK_ODD = (
    *_NUMBERS,
    *(text for text in _TEXTS if text != "\ud800"),
    2**64 - 1,
    float("nan"),
    float("inf"),
    float("-inf"),
    b"",
    b"\xff" * 64,
    Raw(b"\xa4\xff\xfe\xff\xfe"),  # text that is not UTF-8
    Raw(b"\xc1"),  # no type at all
    Raw(b"\xdd\xff\xff\xff\xff"),  # four billion elements
    Raw(b"\xdf\xff\xff\xff\xff"),
    Raw(b"\xdb\xff\xff\xff\xff"),
    Raw(b"\xc6\xff\xff\xff\xff"),
    Raw(b"\xc9\xff\xff\xff\xff\x40"),
    Raw(b"\xdc\xff\xff" + b"\x91" * 500),
    Raw(b"\x91" * 1500 + b"\x01"),
    Raw(b"\x81\xa1a" * 600 + b"\x01"),
    Raw(b"\x81" * 1500 + b"\x01" * 1501),
    Raw(b"\xd6\xff\x00\x00\x00\x01"),  # a timestamp
    Raw(b"\xc7\x0c\xff" + b"\xff" * 12),
    Raw(b"\xd4\x05a"),
    Raw(_nested_extensions(0x40, 200)),
    Raw(_nested_extensions(0x50, 50)),
)
_JSON_ODD = (
    *_NUMBERS,
    *_TEXTS,
    10**400,
    Raw(b"NaN"),
    Raw(b"Infinity"),
    Raw(b"-Infinity"),
    Raw(b"1e999"),
    Raw(b"-0"),
    Raw(b"9" * 5000),
    Raw(b'"\\ud800"'),
    Raw(b'"\\u0000"'),
    Raw(b'"\xff\xfe"'),
    Raw(b"[" * 5000),
    Raw(b"[" * 2000 + b"]" * 2000),
    Raw(b'{"a":' * 1000),
    Raw(b"{}"),
    Raw(b"[]"),
    Raw(b"\xef\xbb\xbf{}"),
)
_TEXT_ODD = (
    *_TEXTS,
    "9" * 5000,
    "1" * 300,
    "-" * 64,
    "p2p",
    "ip6",
    "::1%0",
    "\u0663",
    Raw(b"\xff\xfe"),
)

BYTES: Form | None = None
"""No tree is known; only bytes are changed."""
MSGPACK = Form(
    split=lambda data: (_read_msgpack(data), b""),
    join=lambda tree, _rest, _rng: _write_msgpack(tree),
    odd=_MSGPACK_ODD,
)
JSON = Form(
    split=lambda data: (_read_json(data), b""),
    join=lambda tree, _rest, _rng: _write_json(tree),
    odd=_JSON_ODD,
)
FRAME = Form(split=_split_frame, join=_join_frame, odd=_MSGPACK_ODD)
"""`swarm.streams`: sizes, a msgpack header, a body."""
SAFETENSORS = Form(split=_split_safetensors, join=_join_safetensors, odd=_JSON_ODD)
PATH = Form(split=_split_text, join=_join_text, odd=_TEXT_ODD)
"""Multiaddrs: text cut at slashes."""
