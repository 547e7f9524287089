"""The few fields of libp2p's relay messages that we write and read, by hand: a compiler is no gain.

protobuf HopMessage { Type type = 1; Reservation reservation = 3; Status status = 5 }
"""

from __future__ import annotations

from collections.abc import Iterator

RESERVE = bytes([0x02, 0x08, 0x00])
"""Type RESERVE, with its length in front."""
STATUS_OK = 100
STATUS_WORDS = {
    200: "it has no place left, or does not know us",
    201: "it is short of resources",
    202: "it does not permit it",
}
_STATUS_FIELD = 5


def status_of(message: bytes) -> int:
    """The status of a protobuf HopMessage; 0 if it is malformed or has none."""
    try:
        return next((value for field, value in _integers(message) if field == _STATUS_FIELD), 0)
    except (IndexError, ValueError):
        return 0


def _integers(message: bytes) -> Iterator[tuple[int, int]]:
    """Field number and value of the integers of a protobuf message; the rest is skipped."""
    position = 0

    def varint() -> int:
        nonlocal position
        value, shift = 0, 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            position += size
        else:
            raise ValueError(f"wire type {key & 7} is not used here")
