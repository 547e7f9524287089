"""How a round ends: groups form, every member merges a share, and every replica judges for itself.

Shapes: P parameters, M members of a group.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from benchmarks.attacks.attackers import TRAINED, Attacker
from benchmarks.attacks.config import Protection
from bt_p2p.averaging.averager import GroupAverage, PartnerReport, Share
from bt_p2p.averaging.gate import Gate
from bt_p2p.averaging.merge import Observation, ShareMerger
from bt_p2p.averaging.outer import OuterMomentum
from bt_p2p.training.trainer import BlockTrainer

Weights = dict[str, Tensor]
_TRIMMED_SHARE = 0.2
"""Of the members, at each end of each coordinate."""


@dataclass(kw_only=True, slots=True, eq=False)
class Replica:
    """One volunteer, honest if it has no attacker in it."""

    peer_id: str
    trainer: BlockTrainer
    outer: OuterMomentum
    gate: Gate
    attacker: Attacker | None = None
    agreed: Weights = field(default_factory=dict)
    """What it serves."""

    @property
    def trains(self) -> bool:
        """Whether its local steps are worth their time."""
        return self.attacker is None or self.attacker.kind in TRAINED


@dataclass(kw_only=True, slots=True)
class Tally:
    """What protection did and cost."""

    averages: int = 0
    """Adopted, of all honest replicas."""
    refused: int = 0
    """Averages that an honest replica refused."""
    failed: int = 0
    """Rounds of an honest replica that failed by another's fault."""
    first_refusal: dict[str, int] = field(default_factory=dict)
    """Round in which an attacker was first refused by each honest replica, by their names."""
    wrongly_refused: int = 0
    """Honest replicas that an honest replica refused, pairs and rounds."""
    merge_s: float = 0.0
    judge_s: float = 0.0


class Swarm:
    """All replicas of the block."""

    def __init__(
        self, replicas: list[Replica], protection: Protection, generator: np.random.Generator
    ) -> None:
        self.replicas = replicas
        self.honest = [replica for replica in replicas if replica.attacker is None]
        self.tally = Tally()
        self._protection = protection
        self._generator = generator
        self._has_gate = protection in ("gate", "full")

    def end_round(self, number: int, starts: dict[str, Weights]) -> None:
        """Average, and adopt or keep."""
        bring = self._bring(starts)
        for group in self._groups():
            if len(group) > 1:
                self._average(number, group, starts, bring)
            else:
                self._keep(group)
            for replica in group:
                replica.gate.end_round(is_alone=len(group) == 1)
        for replica in self.honest:
            for other in self.replicas:
                if other.peer_id in replica.gate.refused:
                    key = f"{replica.peer_id}/{other.peer_id}"
                    if other.attacker is not None:
                        self.tally.first_refusal.setdefault(key, number + 1)
                    else:
                        self.tally.wrongly_refused += 1

    def _bring(self, starts: dict[str, Weights]) -> dict[str, Tensor]:
        """Flat weights by peer id."""
        trained = {replica.peer_id: flat(replica.trainer.weights()) for replica in self.replicas}
        honest_MP = torch.stack([trained[replica.peer_id] for replica in self.honest])
        return {
            replica.peer_id: trained[replica.peer_id]
            if replica.attacker is None
            else replica.attacker.brings(
                flat(starts[replica.peer_id]), trained[replica.peer_id], honest_MP
            )
            for replica in self.replicas
        }

    def _groups(self) -> list[list[Replica]]:
        """As matchmaking does: a leader takes whom it does not refuse and who does not refuse it."""
        pool = [self.replicas[index] for index in self._generator.permutation(len(self.replicas))]
        if not self._has_gate:
            return [pool]
        groups = []
        while pool:
            leader = pool[0]
            group = [
                member
                for member in pool
                if member is leader or not (_refuses(leader, member) or _refuses(member, leader))
            ]
            pool = [member for member in pool if member not in group]
            groups.append(group)
        return groups

    def _average(
        self,
        number: int,
        group: list[Replica],
        starts: dict[str, Weights],
        bring: dict[str, Tensor],
    ) -> None:
        broken = [
            replica for replica in group if not bool(torch.isfinite(bring[replica.peer_id]).all())
        ]
        if broken and self._has_gate:
            for replica in group:
                replica.gate.blame({each.peer_id: "its weights are not finite" for each in broken})
            self.tally.failed += sum(replica.attacker is None for replica in group)
            self._keep(group)
            return
        merged_P, shares, seen = self._merge(group, starts, bring)
        weights = unflat(merged_P, starts[group[0].peer_id])
        for replica in group:
            if replica.attacker is not None:
                if bool(torch.isfinite(merged_P).all()):
                    self._adopt(replica, weights)
                continue
            average = GroupAverage(
                weights=weights,
                partners={
                    other.peer_id: PartnerReport(round_index=number)
                    for other in group
                    if other is not replica
                },
                shares=shares,
                observations=seen[replica.peer_id],
            )
            started_s = time.process_time()
            own = replica.trainer.weights()
            reason = self._has_gate and replica.gate.reason_to_refuse(
                average, own, starts[replica.peer_id], round_index=number
            )
            self.tally.judge_s += time.process_time() - started_s
            if reason:
                self.tally.refused += 1
                self._keep([replica])
            else:
                self.tally.averages += 1
                self._adopt(replica, weights)

    def _merge(
        self, group: list[Replica], starts: dict[str, Weights], bring: dict[str, Tensor]
    ) -> tuple[Tensor, tuple[Share, ...], dict[str, dict[str, Observation]]]:
        """The average, who made which part of it, and what each saw in its share."""
        sizes = [tensor.numel() for tensor in starts[group[0].peer_id].values()]
        total = sum(sizes)
        borders = np.linspace(0, total, len(group) + 1).astype(int).tolist()
        cuts = sorted({*borders, *np.cumsum(sizes).tolist()})
        merged, shares, seen = [], [], {}
        for index, reducer in enumerate(group):
            first, last = borders[index : index + 2]
            start_P = flat(starts[reducer.peer_id])
            parts = [
                slice(low, high) for low, high in itertools.pairwise(cuts) if first < high <= last
            ]
            trust = reducer.gate.trust if self._has_gate and reducer.attacker is None else {}
            merger = ShareMerger([trust.get(member.peer_id, 1.0) for member in group], index)
            started_s = time.process_time()
            done_P = torch.cat(
                [
                    merger_part(
                        self._protection,
                        merger,
                        [bring[m.peer_id][part] for m in group],
                        start_P[part],
                    )
                    for part in parts
                ]
            )
            self.tally.merge_s += time.process_time() - started_s
            if reducer.attacker is not None:
                done_P = reducer.attacker.hands_back(done_P, start_P[first:last])
            merged.append(done_P)
            shares.append(Share(peer_id=reducer.peer_id, num_elements=last - first))
            seen[reducer.peer_id] = {
                group[member].peer_id: found for member, found in merger.observations().items()
            }
        return torch.cat(merged), tuple(shares), seen

    def _adopt(self, replica: Replica, weights: Weights) -> None:
        replica.agreed = weights
        replica.trainer.load_weights(replica.outer.step(weights))

    def _keep(self, group: Sequence[Replica]) -> None:
        for replica in group:
            replica.agreed = replica.trainer.weights()
            replica.outer.reset()


def merger_part(
    protection: Protection, merger: ShareMerger, parts: list[Tensor], start_P: Tensor
) -> Tensor:
    """A part, merged as the protection says; the samples of all members are the same."""
    merged_P = merger.merge(parts, [1.0] * len(parts), start_P)
    if protection == "trimmed":
        num_trimmed = int(_TRIMMED_SHARE * len(parts))
        ordered_MP = torch.stack(parts).sort(dim=0).values
        return ordered_MP[num_trimmed : len(parts) - num_trimmed].mean(dim=0)
    if protection in ("none", "gate"):
        return torch.stack(parts).mean(dim=0)
    return merged_P


def flat(weights: Mapping[str, Tensor]) -> Tensor:
    """All parameters in one row."""
    return torch.cat([tensor.flatten() for tensor in weights.values()])


def unflat(flat_P: Tensor, like: Weights) -> Weights:
    """The reverse of `flat`."""
    parts = torch.split(flat_P, [tensor.numel() for tensor in like.values()])
    return {
        name: part.view_as(tensor).clone()
        for part, (name, tensor) in zip(parts, like.items(), strict=True)
    }


def _refuses(replica: Replica, other: Replica) -> bool:
    return replica.attacker is None and other.peer_id in replica.gate.refused
