"""One reader of bytes that a stranger chooses, and what it may do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.fuzz.forms import BYTES, Form


def _is_accepted(result: object) -> bool:
    """Readers that never raise say with False or None that they refuse."""
    return result is not None and result is not False


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """One reader of hostile bytes."""

    name: str
    sender: str
    """Who chooses the bytes."""
    decode: Callable[[bytes], object]
    messages: tuple[bytes, ...]
    """Valid ones."""
    refuses_with: tuple[type[Exception], ...] = ()
    """What it may raise; nothing else, whatever the bytes are."""
    form: Form | None = BYTES
    max_size_bytes: int = 8192
    """Of an input; above its own cap, so that the cap is met, too."""

    def accepts(self, data: bytes) -> bool:
        """Feed it; whether it took the bytes. Raises what it must not raise."""
        try:
            return _is_accepted(self.decode(data))
        except self.refuses_with:
            return False
