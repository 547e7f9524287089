"""Malformed requests of every kind, from a seed."""

from __future__ import annotations

import random
import struct

from bt_p2p.protocol import wire
from bt_p2p.protocol.limits import MAX_FRAME_BODY_SIZE_BYTES, MAX_FRAME_HEADER_SIZE_BYTES

_SIZES = struct.Struct("<IQ")


def bad_frames(seed: int) -> list[bytes]:
    """One of each kind of malformed request."""
    draw = random.Random(seed)  # noqa: S311 - repeatable on purpose
    noise = draw.randbytes(4000)
    valid = wire.pack({"kind": "traverse", "run": "nothing", "block": 0})
    nested = b"\x81\xa1a" * 900 + b"\xc0"
    odd = [
        {"kind": 7},
        {"kind": "traverse", "run": 3, "block": "x"},
        {"kind": "weights", "run": "r" * 200, "block": -1},
        {"kind": "bundle", "frames": [[1, 2], "x", None]},
        {"kind": "forward", "route": [draw.random() for _ in range(50)]},
        {"": "", "kind": None},
    ]
    return [
        noise,
        b"GET / HTTP/1.1\r\nHost: peer\r\n\r\n",
        _SIZES.pack(0, 0),
        _SIZES.pack(MAX_FRAME_HEADER_SIZE_BYTES + 1, 0) + noise,
        _SIZES.pack(2**32 - 1, 2**64 - 1) + noise,
        _SIZES.pack(len(valid), MAX_FRAME_BODY_SIZE_BYTES + 1) + valid,
        _SIZES.pack(len(valid), 1_000_000) + valid + noise,  # the rest never comes
        _SIZES.pack(len(noise), 0) + noise,
        _SIZES.pack(len(nested), 0) + nested,
        *(_SIZES.pack(len(each), len(noise)) + each + noise for each in map(wire.pack, odd)),
    ]
