"""bt_p2p.chain.window: which bytes a traversal sees."""

from __future__ import annotations

import pytest

from bt_p2p.chain.window import window_end, window_start


@pytest.mark.parametrize("context", [8, 9, 16, 128])
def test_a_window_holds_more_than_half_a_context_and_never_more_than_one(context):
    """Once the text is longer than the context."""
    for position in range(1, 6 * context):
        size = position - window_start(position, context)
        assert 1 <= size <= context
        assert position <= context or size > context - max(1, context // 2)


@pytest.mark.parametrize("context", [8, 9, 128])
def test_windows_move_forwards_in_steps(context):
    """By half a context; all positions before `window_end` share a window."""
    for position in range(1, 5 * context):
        start, end = window_start(position, context), window_end(position, context)
        assert 0 == start % (context // 2)
        assert {start} == {window_start(other, context) for other in range(position, end)}
        assert start < window_start(end, context)
