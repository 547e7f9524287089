"""What a node would do in a run: which block, how much work and traffic, and how long it averages."""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.averaging.schedule import matchmaking_s, payload_size_bytes
from bt_p2p.model.sizes import BlockSizes
from bt_p2p.protocol.manifest import RunManifest
from node.doctor.finding import Finding

_HIGH_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The numbers of one node in one run."""

    run_id: str
    block: int | None
    """None while the swarm was not asked."""
    num_blocks: int
    num_replicas: int
    """Other nodes that hold the block."""
    batch_size: int
    round_s: float
    sent_bytes_per_round: int
    """In a group of all replicas and this node; at least two."""
    averaging_s: float | None
    """Expected time of an exchange; None if no link was measured."""

    @property
    def averaging_share(self) -> float | None:
        """Expected share of a round that goes into averaging."""
        return None if self.averaging_s is None else min(1.0, self.averaging_s / self.round_s)


def make_plan(
    manifest: RunManifest,
    sizes: BlockSizes,
    *,
    block: int | None,
    num_replicas: int,
    link_bytes_per_s: float | None,
) -> Plan:
    """Work out what a node would do.

    Args:
        manifest: the run.
        sizes: of one block.
        block: the one it would take.
        num_replicas: other nodes on it.
        link_bytes_per_s: measured speed of the link.
    """
    sent = payload_size_bytes(sizes.weights_size_bytes, max(2, num_replicas + 1))
    if manifest.rounds.compression == "float16":
        sent //= 2
    averaging_s = None
    if link_bytes_per_s:
        averaging_s = sent / link_bytes_per_s
    return Plan(
        run_id=manifest.run_id,
        block=block,
        num_blocks=manifest.model.num_blocks,
        num_replicas=num_replicas,
        batch_size=manifest.optimizer.batch_size,
        round_s=manifest.rounds.round_s,
        sent_bytes_per_round=sent,
        averaging_s=averaging_s,
    )


def plan_finding(plan: Plan) -> Finding:
    """The plan in one line; a warning if averaging would take most of the time."""
    block = "the thinnest block" if plan.block is None else f"block {plan.block}"
    parts = [
        f"run {plan.run_id}: {block} of {plan.num_blocks} with {plan.num_replicas} other replicas",
        f"batches of {plan.batch_size}",
        f"{plan.sent_bytes_per_round / 1e6:.2f} MB sent in a round of {plan.round_s:g} s",
    ]
    share = plan.averaging_share
    if share is not None:
        parts.append(f"{share:.0%} of the time averaging")
    text = ", ".join(parts)
    if share is None or share < _HIGH_SHARE:
        return Finding(check="plan", severity="ok", text=text)
    return Finding(
        check="plan",
        severity="warning",
        code="averaging-long",
        text=text,
        fix=f"the exchange needs {plan.averaging_s or 0:.0f} s on this link, and others wait "
        f"{matchmaking_s(plan.round_s):g} s for a group: join a run with longer rounds or smaller "
        f"blocks",
    )
