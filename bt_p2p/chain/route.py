"""Which holder is asked for which block. Pure: a view of the swarm in, an order of holders out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bt_p2p.errors import NoRouteError
from bt_p2p.protocol.address import dialable
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import MAX_ROUND_LAG
from bt_p2p.protocol.overview import BlockOverview, SwarmOverview


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """For each block its holders, the one to ask first in front."""

    holders: tuple[tuple[Lease, ...], ...]

    def without(self, peer_id: str) -> Route:
        """The same route with a failed peer left out."""
        return Route(
            holders=tuple(
                tuple(lease for lease in of_block if lease.peer_id != peer_id)
                for of_block in self.holders
            )
        )

    def demoted(self, peer_id: str) -> Route:
        """The same route with a slow peer behind the others."""
        return Route(
            holders=tuple(
                tuple(sorted(of_block, key=lambda lease: lease.peer_id == peer_id))
                for of_block in self.holders
            )
        )


def plan_route(
    overview: SwarmOverview,
    *,
    latency_s: Mapping[str, float],
    avoid: Collection[str] = (),
) -> Route:
    """Order the holders of every block: fresh weights first, then the quickest, then the direct ones.

    Peers that serve a copy count as holders, at the round of the copy. One more than `MAX_ROUND_LAG`
    rounds behind its block's newest comes after all others.

    Args:
        overview: the swarm.
        latency_s: seconds that a request to a peer takes, measured or expected; infinite for those
            that do not answer, and for those not in it.
        avoid: peers that failed just now.

    Raises:
        NoRouteError: some block has no holder; names the blocks and what would serve them.
    """

    def ranked(block: BlockOverview) -> tuple[Lease, ...]:
        serving = [
            (round_index, lease)
            for lease in (*block.holders, *block.copiers)
            if (round_index := lease.round_of(block.index)) is not None
            and lease.peer_id not in avoid
        ]
        newest = max((round_index for round_index, _ in serving), default=0)

        def rank(pair: tuple[int, Lease]) -> tuple[bool, float, bool, int, str]:
            lag, lease = newest - pair[0], pair[1]
            expected_s = latency_s.get(lease.peer_id, math.inf)
            return (lag > MAX_ROUND_LAG, expected_s, lease.is_relayed, lag, lease.peer_id)

        return tuple(lease for _, lease in sorted(serving, key=rank))

    holders = [ranked(block) for block in overview.blocks]
    missing = [index for index, of_block in enumerate(holders) if not of_block]
    if missing:
        raise NoRouteError(missing_blocks_message(overview, missing), missing_blocks=missing)
    return Route(holders=tuple(holders))


def missing_blocks_message(overview: SwarmOverview, missing: Collection[int]) -> str:
    """One sentence: which blocks nobody holds, who holds the others, and what would serve them."""
    total = len(overview.blocks)
    names = ", ".join(str(index) for index in missing)
    others = ", ".join(
        f"{block.index}: {len(block.holders)}"
        for block in overview.blocks
        if block.index not in missing
    )
    holders = [lease for block in overview.blocks for lease in block.holders]
    addresses = [address for lease in holders for address in lease.addresses]
    entry = next(iter(dialable(addresses)), "MULTIADDR")  # holders are strangers; people paste this
    return (
        f"no live node holds block {names} of {total} "
        f"({f'holders by block: {others}' if others else 'no block has a holder'}); serve it with: "
        f"bt-node join --run {overview.manifest.run_id} --block {next(iter(missing))} "
        f"--initial-peers {entry}"
    )
