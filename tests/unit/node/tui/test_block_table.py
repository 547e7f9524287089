"""Rows of the table of blocks."""

from __future__ import annotations

import pytest

from bt_p2p.protocol.lease import BlockCopy
from node.tui.block_table import block_row, most_needy


def plain(row):
    """A row as strings."""
    return {title: cell.plain for title, cell in row.items()}


def test_block_tells_holders_round_loss_and_speed(swarm, lease, now_s):
    """The newest round counts, losses are averaged, speeds are added."""
    block = swarm([lease(1, 0, loss=2.0), lease(2, 0, loss=3.0, round_index=9)]).blocks[0]
    row = plain(block_row(block, mine="12D3KooWpeer000002", now_s=now_s))
    assert ("0", "2", "12", "2.500", "6.4 kB/s", "yours") == tuple(
        row[title] for title in ("block", "holders", "round", "loss", "speed", "")
    )


def test_trend_is_drawn_from_two_rounds_on(swarm, lease, now_s):
    """One value is no curve; the newest values are kept."""
    block = swarm([lease(1, 0)]).blocks[0]
    curves = [
        plain(block_row(block, mine=None, now_s=now_s, losses=losses, ascii_only=True))["trend"]
        for losses in ([2.0], [3.0, 2.0], [9.0, *[2.0] * 20])
    ]
    assert ["", "#_", "_" * 20] == curves


def test_block_without_holders_says_so(swarm, now_s):
    """An uncovered block has no numbers."""
    row = plain(block_row(swarm([]).blocks[0], mine=None, now_s=now_s))
    assert ("0", "-", "-", "-", "no holder") == tuple(
        row[title] for title in ("holders", "round", "loss", "speed", "")
    )


def test_stale_holders_and_copies_are_counted(swarm, lease, now_s):
    """What is not as it seems, and what helps beside the holders."""
    leases = [
        lease(1, 0, age_s=27.0),
        lease(2, 0),
        lease(3, 1, copies=[BlockCopy(block=0, round_index=3)]),
    ]
    row = plain(block_row(swarm(leases).blocks[0], mine=None, now_s=now_s))
    assert "1 stale, 1 copy" == row[""]


@pytest.mark.parametrize(
    ("max_rows", "expected"), [(5, [0, 1, 2, 3, 4]), (4, [1, 2, 3]), (3, [1, 3]), (1, [])]
)
def test_blocks_left_out_have_more_holders(swarm, lease, max_rows, expected):
    """One's own block and those with fewest holders stay; a row is kept for the count."""
    leases = [lease(1, 0), lease(2, 0), lease(3, 2), lease(4, 3), lease(5, 3), lease(6, 3)]
    leases += [lease(7, 4), lease(8, 4)]
    blocks = swarm(leases, num_blocks=5).blocks
    shown = most_needy(blocks, mine="12D3KooWpeer000004", max_rows=max_rows)
    assert expected == [block.index for block in shown]
