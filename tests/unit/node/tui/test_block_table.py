"""Rows of the table of blocks."""

from __future__ import annotations

import pytest

from node.tui.block_table import block_rows


def holders(rows):
    """The holder column as strings."""
    return [row["holder"].plain for row in rows]


def test_each_holder_has_a_row(swarm, lease, now_s):
    """Without a limit every holder is listed, the user's own first."""
    block = swarm([lease(number, 0) for number in range(1, 5)]).blocks[0]
    assert ["…000003 (you)", "…000001", "…000002", "…000004"] == holders(
        block_rows(block, mine="12D3KooWpeer000003", now_s=now_s)
    )


@pytest.mark.parametrize(
    ("max_rows", "expected"),
    [
        (1, ["5 holders"]),
        (2, ["…000001", "+4 more"]),
        (4, ["…000001", "…000002", "…000003", "+2 more"]),
        (5, ["…000001", "…000002", "…000003", "…000004", "…000005"]),
        (9, ["…000001", "…000002", "…000003", "…000004", "…000005"]),
    ],
)
def test_holders_that_do_not_fit_are_counted(swarm, lease, now_s, max_rows, expected):
    """The last row counts the holders left out; a single row counts them all."""
    block = swarm([lease(number, 0) for number in range(1, 6)]).blocks[0]
    assert expected == holders(block_rows(block, mine=None, now_s=now_s, max_rows=max_rows))


def test_one_row_tells_of_you_and_of_stale_holders(swarm, lease, now_s):
    """In a single row the user is named and stale holders are counted."""
    block = swarm([lease(1, 0), lease(2, 0, age_s=27.0)]).blocks[0]
    (row,) = block_rows(block, mine="12D3KooWpeer000001", now_s=now_s, max_rows=1)
    assert ("you +1 more", "1 stale") == (row["holder"].plain, row["state"].plain)


def test_block_without_holders_says_so(swarm, now_s):
    """An uncovered block has one row without numbers."""
    (row,) = block_rows(swarm([]).blocks[0], mine=None, now_s=now_s)
    assert ("no holder", "-", "-", "-") == tuple(
        row[title].plain for title in ("holder", "round", "loss", "speed")
    )


def test_old_lease_is_marked_stale(swarm, lease, now_s):
    """A holder that missed two renewals is stale, whatever it said of itself."""
    block = swarm([lease(1, 0, age_s=27.0)]).blocks[0]
    (row,) = block_rows(block, mine=None, now_s=now_s)
    assert ("stale", "27 s") == (row["state"].plain, row["age"].plain)
