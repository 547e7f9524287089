"""What the demo found, and whether it counts as a success."""

from __future__ import annotations

from pydantic import BaseModel

MIN_DROP_NATS = 1.5


class DemoReport(BaseModel):
    """Written to `report.json`. Cross entropies are nats per byte of held-out text."""

    run_id: str
    ce_start: float
    """Of the initial weights."""
    ce_end: float
    """Of the swarm's model, asked over the network."""
    ce_end_per_block: list[float]
    ce_order1: float
    """Of an order-1 byte model fitted on the same training text."""
    bytes_scored: int
    rounds: int
    """Newest round of any block."""
    averaged_rounds: int
    """Averages adopted, summed over volunteers."""
    averaged_rounds_by_block: list[int]
    bytes_sent: int
    """Weights and answers sent by all volunteers, protocol overhead left out."""
    peers: int
    """Volunteers alive at the end."""
    traversals: dict[str, int]
    """By mode of generation."""
    samples: dict[str, str]
    seventh_took_round: int
    """Round that the late volunteer took over from a replica; the bootstrap peer was dead."""
    killed_dropped_after_s: float
    """From kill -9 of a volunteer until it was gone from the swarm's view."""
    killed_came_back: bool
    """Whether it rejoined with its old identity, on whichever block is the thinnest."""
    seconds: float
    leftovers: int
    """Processes of the demo that outlived it."""

    def problems(self, *, lease_ttl_s: float) -> list[str]:
        """Everything that keeps this run from being a success."""
        found = []
        if self.ce_end > self.ce_start - MIN_DROP_NATS:
            found.append(
                f"cross entropy fell by {self.ce_start - self.ce_end:.2f} nats, "
                f"not by {MIN_DROP_NATS}"
            )
        if self.ce_end >= self.ce_order1:
            found.append(f"{self.ce_end:.3f} is not below the order-1 model's {self.ce_order1:.3f}")
        for block, count in enumerate(self.averaged_rounds_by_block):
            if count == 0:
                found.append(f"block {block} was never averaged")
        if self.seventh_took_round < 1:
            found.append("the late volunteer took no weights from a replica")
        if self.killed_dropped_after_s > lease_ttl_s + 5:
            found.append(f"a killed volunteer was listed for {self.killed_dropped_after_s:.0f} s")
        if not self.killed_came_back:
            found.append("the killed volunteer did not come back")
        if self.leftovers:
            found.append(f"{self.leftovers} processes were left running")
        return found
