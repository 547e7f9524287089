"""Bytes to text while they arrive: only whole characters are ever shown."""

from __future__ import annotations

import codecs


class TextDecoder:
    """Incremental UTF-8: the pieces it returns join to the decoding of all bytes at once."""

    def __init__(self) -> None:
        """Start at a character's beginning."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def is_at_boundary(self) -> bool:
        """Whether no character has begun without having ended."""
        return not self._decoder.getstate()[0]

    def feed(self, data: bytes) -> str:
        """The whole characters that these bytes complete."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What a character cut off at the end becomes: at most one replacement character."""
        return self._decoder.decode(b"", final=True)
