"""How a round ends in the simulation: who contributes, who adopts, and the outer optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.replicas.config import Scenario
from bt_p2p.averaging.admission import reason_to_refuse, round_after
from bt_p2p.averaging.averager import GroupAverage, PartnerReport
from bt_p2p.averaging.outer import OuterMomentum
from bt_p2p.averaging.schedule import payload_size_bytes
from bt_p2p.model.seeding import seeded_generator
from bt_p2p.training.trainer import BlockTrainer


def attendance(seed: int, scenario: Scenario, num_rounds: int) -> NDArray[np.bool_]:
    """Whether each replica attends the end of each round, [num_rounds, replicas].

    Scenarios that differ in participation share their draws: who attends at 42 % also does at 90 %.
    """
    generator = seeded_generator(f"benchmarks/replicas/attendance/{seed}")
    return generator.random((num_rounds, scenario.replicas)) < scenario.participation


@dataclass(frozen=True, kw_only=True, slots=True)
class Contribution:
    """What a replica brings to an average."""

    peer_id: str
    weights: dict[str, Tensor]
    num_samples: int
    round_index: int


def weighted_mean(contributions: Sequence[Contribution]) -> dict[str, Tensor]:
    """Mean by samples, summed in double precision as `bt_p2p.testing.averager` does."""
    total = sum(each.num_samples for each in contributions)
    return {
        name: torch.stack(
            [each.weights[name].double() * (each.num_samples / total) for each in contributions]
        )
        .sum(dim=0)
        .float()
        for name in contributions[0].weights
    }


@dataclass(kw_only=True, slots=True, eq=False)
class Replica:
    """One volunteer."""

    peer_id: str
    trainer: BlockTrainer
    num_samples: int = 0
    """In this round."""
    round_index: int = 0
    """Rounds its weights have been through."""
    version: int = 0
    """The average it took last, counted from 1."""

    def contribution(self) -> Contribution:
        """What it would bring now."""
        return Contribution(
            peer_id=self.peer_id,
            weights=self.trainer.weights(),
            num_samples=max(1, self.num_samples),
            round_index=self.round_index,
        )


@dataclass(kw_only=True, slots=True)
class Swarm:
    """All replicas of the block, and what they agreed on."""

    scenario: Scenario
    replicas: list[Replica]
    outer: OuterMomentum | None = None
    agreed: dict[str, Tensor] | None = None
    """The last average."""
    averages: int = 0
    refused: int = 0
    """Times a replica refused an average, by the node's own rule."""
    bytes_sent: int = 0
    """By all replicas together."""
    _late: list[Contribution] = field(default_factory=list)
    _under_way: list[tuple[Replica, Mapping[str, Tensor], Mapping[str, Tensor]]] = field(
        default_factory=list
    )
    """Who waits for the average, what it had then, and what it goes on from."""

    def begin_round(self) -> None:
        """From here on samples count for the next average."""
        for replica in self.replicas:
            replica.num_samples = 0

    def end_round(self, is_there: Sequence[bool]) -> None:
        """Average, and adopt or keep."""
        here = [replica for replica, there in zip(self.replicas, is_there, strict=True) if there]
        givers, takers = self._members(here)
        took = self._average(givers, takers) if givers and len(takers) > 1 else []
        for replica in self.replicas:
            if replica not in took:
                replica.round_index += 1

    def arrive(self) -> None:
        """The average that was under way is there: its change comes on top of the steps since."""
        for replica, brought, weights in self._under_way:
            own, share = replica.trainer.weights(), self.scenario.kept_share
            replica.trainer.load_weights(
                {name: weights[name] + share * (own[name] - brought[name]) for name in own}
            )
        self._under_way = []

    def _members(self, here: list[Replica]) -> tuple[list[Contribution], list[Replica]]:
        """Who contributes what, and who gets the average."""
        if self.scenario.missed == "late":
            absent = [replica for replica in self.replicas if replica not in here]
            arrived, self._late = self._late, [replica.contribution() for replica in absent]
            return [*(replica.contribution() for replica in here), *arrived], self.replicas
        givers = here
        if self.scenario.missed == "dropped":
            newest = max((replica.version for replica in here), default=0)
            givers = [replica for replica in here if replica.version == newest]
        return [replica.contribution() for replica in givers], here

    def _average(self, givers: list[Contribution], takers: list[Replica]) -> list[Replica]:
        """One average; returns who adopted it."""
        mean = weighted_mean(givers)
        weights = mean
        if self.outer is not None:
            weights = dict(self.outer.step(mean))
            self.outer.begin(weights)
        size_bytes = sum(tensor.nbytes for tensor in weights.values())
        giver_ids = {giver.peer_id for giver in givers}
        num_downloads = sum(taker.peer_id not in giver_ids for taker in takers)
        self.bytes_sent += len(givers) * payload_size_bytes(size_bytes, len(givers))
        self.bytes_sent += num_downloads * size_bytes
        self.averages += 1
        took = []
        for taker in takers:
            reports = {
                giver.peer_id: PartnerReport(round_index=giver.round_index)
                for giver in givers
                if giver.peer_id != taker.peer_id
            }
            average = GroupAverage(weights=weights, partners=reports)
            own = taker.trainer.weights()
            if reason_to_refuse(average, own, round_index=taker.round_index):
                self.refused += 1
                continue
            self.agreed = weights
            if self.scenario.average_takes:
                self._under_way.append((taker, own, weights))
            else:
                taker.trainer.load_weights(weights)
            taker.version = self.averages
            taker.round_index = round_after(average, round_index=taker.round_index)
            took.append(taker)
        return took
