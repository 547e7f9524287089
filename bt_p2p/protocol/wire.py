"""Bytes to values and back, for bytes that strangers sent: msgpack without extension types."""

from __future__ import annotations

from typing import Any

import msgpack

from bt_p2p.errors import WireFormatError

_MAX_DEPTH = 16
"""Our own messages need three."""


def pack(value: Any) -> bytes:
    """Encode plain values (maps with text keys, lists, text, bytes, numbers, None)."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(data: bytes, *, max_size_bytes: int) -> Any:
    """Decode bytes from a peer.

    Raises:
        WireFormatError: over the cap, not msgpack, too deep, or with extension types.
    """
    if len(data) > max_size_bytes:
        raise WireFormatError(f"message of {len(data)} bytes is over the cap of {max_size_bytes}")
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            ext_hook=_refuse_extension,
        )
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as exc:
        raise WireFormatError(f"message is not valid msgpack: {exc}") from exc
    _check_plain(value)
    return value


def unpack_map(data: bytes, *, max_size_bytes: int) -> dict[str, Any]:
    """Decode bytes from a peer that must be a map with text keys.

    Raises:
        WireFormatError: as `unpack`, or another type.
    """
    value = unpack(data, max_size_bytes=max_size_bytes)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise WireFormatError(f"message is a {type(value).__name__}, not a map with text keys")
    return value


def _check_plain(value: Any) -> None:
    """Refuse deep nesting, which breaks whoever recurses, and the extension msgpack knows itself."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        if any(isinstance(item, msgpack.Timestamp) for item in level):
            raise WireFormatError("message is not valid msgpack: timestamps are not allowed")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        if not inner:
            return
        level = inner
    raise WireFormatError(f"message is nested over {_MAX_DEPTH} levels deep")


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} ({len(data)} bytes) is not allowed")
