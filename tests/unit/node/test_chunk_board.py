"""Every chunk is asked of somebody, and a slow donor is not waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.chunk_board import STEAL_AFTER_S, ChunkBoard


def test_chunks_are_handed_out_once_in_order() -> None:
    """Whoever asks."""
    board = ChunkBoard([0, 2, 3])
    assert [0, 2, 3, None] == [board.take(donor, 0.0) for donor in "abab"]
    assert not board.is_complete
    assert all(board.arrived(index, donor, 0.1) for index, donor in [(0, "a"), (2, "b"), (3, "a")])
    assert board.is_complete


def test_what_one_donor_does_not_give_another_one_does() -> None:
    """It is the next to be handed out."""
    board = ChunkBoard(range(3))
    assert [0, 1] == [board.take("a", 0.0), board.take("b", 0.0)]
    board.failed(0, "a")
    assert [0, 2] == [board.take("b", 0.0), board.take("b", 0.0)]


def test_the_chunks_of_a_slow_donor_are_asked_of_a_second_one_once() -> None:
    """The one that is the slowest first, after a while; never of the same donor."""
    board = ChunkBoard(range(3))
    board.take("slow", 0.0)
    board.take("slow", 0.1)
    board.take("quick", 0.2)
    assert board.arrived(2, "quick", 0.3)
    assert board.take("quick", STEAL_AFTER_S - 0.01) is None
    late_s = STEAL_AFTER_S + 1
    assert [0, 1, None] == [board.take("quick", late_s) for _ in range(3)]
    assert board.take("slow", late_s) is None
    assert [True, False] == [board.arrived(0, "quick", late_s), board.arrived(0, "slow", late_s)]
    board.failed(1, "quick")
    assert not board.is_complete
    assert board.arrived(1, "slow", late_s)
    assert board.is_complete


def test_where_all_are_slow_nobody_is_waited_for_less() -> None:
    """Twice what chunks take is usual."""
    board = ChunkBoard(range(3))
    for donor in "aab":
        board.take(donor, 0.0)
    board.arrived(0, "a", 10.0)
    assert board.take("b", 19.9) is None
    assert 1 == board.take("b", 20.1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=60, max_size=60))
def test_nothing_is_lost_whatever_fails(events) -> None:
    """At each moment a chunk is there, with a donor, or waiting."""
    board, there, asked, now_s = ChunkBoard(range(6)), set(), [], 0.0
    for donor, is_good in events:
        now_s += 1.0
        index = board.take(donor, now_s)
        if index is not None:
            asked.append((index, donor))
        if asked and not is_good:
            board.failed(*asked.pop(0))
        elif asked:
            index, donor = asked.pop()
            assert board.arrived(index, donor, now_s) == (index not in there)
            there.add(index)
    for index, donor in asked:
        board.failed(index, donor)
    while (index := board.take("last", 1e6)) is not None:
        assert board.arrived(index, "last", 1e6)
        there.add(index)
    assert (set(range(6)), True) == (there, board.is_complete)
