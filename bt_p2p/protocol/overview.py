"""The whole swarm at one moment, made from leases alone: what `status` shows and routes need."""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.manifest import RunManifest


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockOverview:
    """One block and the peers that hold it."""

    index: int
    holders: tuple[Lease, ...]
    """Live leases of peers that train it, newest round first."""
    copiers: tuple[Lease, ...] = ()
    """Live leases of peers that train another block and serve a copy of this one."""

    @property
    def round_index(self) -> int | None:
        """The newest round among the holders."""
        return max((lease.round_index for lease in self.holders), default=None)

    @property
    def loss(self) -> float | None:
        """Mean reported loss of the holders that reported one, nats per byte."""
        losses = [lease.loss for lease in self.holders if lease.loss is not None]
        return sum(losses) / len(losses) if losses else None

    @property
    def bytes_per_s(self) -> float:
        """Training speed of all holders together."""
        return sum(lease.bytes_per_s for lease in self.holders)


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmOverview:
    """All blocks of one run."""

    manifest: RunManifest
    blocks: tuple[BlockOverview, ...]
    joining: tuple[Lease, ...]
    num_invalid_records: int
    taken_at_s: float
    """DHT time at which the leases were read."""

    @property
    def num_peers(self) -> int:
        """Live peers, those still choosing a block included."""
        return sum(len(block.holders) for block in self.blocks) + len(self.joining)

    @property
    def uncovered(self) -> tuple[int, ...]:
        """Blocks that nobody holds."""
        return tuple(block.index for block in self.blocks if not block.holders)


def make_overview(manifest: RunManifest, view: LeaseView, *, now_s: float) -> SwarmOverview:
    """Sort live leases into the blocks of a run."""
    blocks = tuple(
        BlockOverview(
            index=index,
            holders=tuple(
                sorted(view.of_block(index), key=lambda lease: (-lease.round_index, lease.peer_id))
            ),
            copiers=tuple(
                lease
                for lease in view.leases
                if lease.block != index and lease.round_of(index) is not None
            ),
        )
        for index in range(manifest.model.num_blocks)
    )
    return SwarmOverview(
        manifest=manifest,
        blocks=blocks,
        joining=view.joining,
        num_invalid_records=view.num_invalid,
        taken_at_s=now_s,
    )
