"""Which block a newcomer takes. Pure: every peer that sees the same leases decides the same.

Peers that announced themselves as joining are placed one after another, in order of their peer ids,
each on the block with the fewest holders that train. So simultaneous starters spread without a coordinator.
"""

from __future__ import annotations

import re

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.limits import MAX_SPAN_BLOCKS
from bt_p2p.protocol.overview import SwarmOverview

_SPAN = re.compile(r"([0-9]{1,6}):([0-9]{1,6})")


def choose_block(overview: SwarmOverview, peer_id: str, *, span: range | None = None) -> int:
    """The block for a peer that leaves the choice to the swarm, or to a span of it.

    Args:
        overview: the swarm, with the peers that are joining right now.
        peer_id: the peer that asks; it counts as joining even if its lease is not visible yet, and
            its own older lease on a block does not count.
        span: the blocks this peer chooses from; None is all of them.
    """
    num_holders = [
        sum(lease.peer_id != peer_id and not lease.is_paused for lease in block.holders)
        for block in overview.blocks
    ]
    joining = sorted({peer_id, *(lease.peer_id for lease in overview.joining)})
    for joiner in joining:
        choice = span if span is not None and joiner == peer_id else range(len(num_holders))
        thinnest = min(choice, key=lambda index: (num_holders[index], index))
        if joiner == peer_id:
            return thinnest
        num_holders[thinnest] += 1
    raise AssertionError("the peer itself is always among the joining")


def parse_span(text: str) -> range:
    """Blocks as people write them: "0:2" is blocks 0 and 1.

    Raises:
        ConfigError: it is not two numbers with a colon between, or not 1 to `MAX_SPAN_BLOCKS` blocks.
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ConfigError(f"span {text[:80]!r} is not FIRST:END; write 0:2 for blocks 0 and 1")
    span = range(int(found[1]), int(found[2]))
    if not 1 <= len(span) <= MAX_SPAN_BLOCKS:
        raise ConfigError(f"span {text} has {len(span)} blocks, allowed are 1 to {MAX_SPAN_BLOCKS}")
    return span


def check_span(span: range, block: int | None, num_blocks: int) -> None:
    """Refuse a span that the run does not have, or that leaves out the block to train.

    Raises:
        ConfigError: names the valid range.
    """
    if span.stop > num_blocks:
        raise ConfigError(
            f"span {span.start}:{span.stop} ends behind this run's blocks: choose from 0:{num_blocks}"
        )
    if block is not None and block not in span:
        raise ConfigError(
            f"block {block} is not in span {span.start}:{span.stop}; choose one of the span"
        )


def check_block(block: int, num_blocks: int) -> None:
    """Refuse a block the run does not have.

    Raises:
        ConfigError: names the valid range.
    """
    if not 0 <= block < num_blocks:
        raise ConfigError(
            f"block {block} is not one of this run's: choose from 0 to {num_blocks - 1}"
        )
