"""Which bytes a traversal sees when a text outgrows the context."""

from __future__ import annotations


def window_start(position: int, context: int) -> int:
    """First byte that the prediction of the byte at `position` may see.

    The window does not move with every byte but by half a context at a time, so that holders can
    keep what they computed, and so that it depends on the position alone: whoever predicts a byte
    of a text, with or without others beside it, sees the same bytes.

    Args:
        position: of the predicted byte in the whole text, prompt included; at least 1.
        context: bytes that a block sees at once.
    """
    stride = max(1, context // 2)
    too_many = position - context
    return 0 if too_many <= 0 else -(-too_many // stride) * stride


def window_end(position: int, context: int) -> int:
    """One past the last position that is predicted from the window of `position`."""
    return window_start(position, context) + context + 1
