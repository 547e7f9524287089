"""Which block a newcomer takes. Pure: every peer that sees the same leases decides the same.

Peers that announced themselves as joining are placed one after another, in order of their peer ids,
each on the block with the fewest holders. So simultaneous starters spread without a coordinator.
"""

from __future__ import annotations

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.overview import SwarmOverview


def choose_block(overview: SwarmOverview, peer_id: str) -> int:
    """The block for a peer that leaves the choice to the swarm.

    Args:
        overview: the swarm, with the peers that are joining right now.
        peer_id: the peer that asks; it counts as joining even if its lease is not visible yet, and
            its own older lease on a block does not count.
    """
    num_holders = [
        sum(lease.peer_id != peer_id for lease in block.holders) for block in overview.blocks
    ]
    joining = sorted({peer_id, *(lease.peer_id for lease in overview.joining)})
    for joiner in joining:
        thinnest = min(range(len(num_holders)), key=lambda index: (num_holders[index], index))
        if joiner == peer_id:
            return thinnest
        num_holders[thinnest] += 1
    raise AssertionError("the peer itself is always among the joining")


def check_block(block: int, num_blocks: int) -> None:
    """Refuse a block the run does not have.

    Raises:
        ConfigError: names the valid range.
    """
    if not 0 <= block < num_blocks:
        raise ConfigError(
            f"block {block} is not one of this run's: choose from 0 to {num_blocks - 1}"
        )
