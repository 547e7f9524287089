"""How a reducer merges one share of a group's weights: centered clipping.

Each part is merged by itself, as soon as it is there, so that a share of any size is streamed.

    c = coordinate-wise median of the members' parts,  d_i = |x_i - c|
    merged = c + sum_i w_i min(1, r / d_i) (x_i - c) / sum_i w_i,  r = 1.5 * median(d)

So whoever is further away than usual is pulled back, and no minority moves the result further than r
from the median. Where nobody is, this is the weighted mean, exactly. Two members, between whom no
median decides, get the weighted mean.

Reference: centered clipping, arXiv 2012.10333, equation 3, one step from the median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bt_p2p.protocol.limits import MAX_WEIGHT_RATIO

CLIP_RADIUS = 1.5
"""In median distances. Replicas that train alike are within 1.1; a flipped sign is at 2 and more."""
MIN_ROBUST_MEMBERS = 3
"""Fewer have no majority."""
_LARGEST = 1e15
"""Of a weight; its square, summed over a part, is still a float32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What a reducer saw of one member's weights, over its whole share."""

    distance: float
    """From the median of the group, over the median of these distances; 0 in a group of two."""
    change: float
    """Norm of its change since the last agreed weights, over the group's median of it."""
    agreement: float
    """Cosine between its change and ours, the only one that is surely honest."""
    usual_agreement: float
    """Upper quartile of it over the other members, attackers being fewer; 1 in a group of two."""
    claim: float
    """Samples it claims, over the median of the group."""


def capped_weights(weights: Sequence[float]) -> list[float]:
    """Samples that members claim, none over `MAX_WEIGHT_RATIO` times the lower median."""
    cap = MAX_WEIGHT_RATIO * statistics.median_low(weights)
    return [min(weight, cap) for weight in weights]


def clipped_mean(members_MP: Tensor, centre_P: Tensor, weights: Sequence[float]) -> Tensor:
    """Weighted mean of parts, those far from the centre pulled towards it.

    Args:
        members_MP: float32, a row for each member.
        centre_P: float32.
        weights: of the members.

    Returns:
        Float32 like the centre.
    """
    weights_M = torch.tensor(weights, dtype=torch.float32)
    weights_M /= weights_M.sum()
    distances = (members_MP - centre_P).norm(dim=1).tolist()
    radius = CLIP_RADIUS * statistics.median_low(distances)
    if max(distances) <= radius:
        return weights_M @ members_MP
    factors_M = torch.tensor(
        [min(1.0, radius / distance) if distance else 1.0 for distance in distances]
    )
    return centre_P + (weights_M * factors_M) @ (members_MP - centre_P)


def median(members_MP: Tensor) -> Tensor:
    """Coordinate-wise median; of an even number of members the mean of the middle two."""
    ordered_MP = members_MP.sort(dim=0).values
    num_members = len(ordered_MP)
    return (ordered_MP[(num_members - 1) // 2] + ordered_MP[num_members // 2]) / 2


class ShareMerger:
    """Merges the parts of one share, one after another, and watches the members over all of them."""

    def __init__(self, trust: Sequence[float], own_index: int) -> None:
        """Begin a share.

        Args:
            trust: how much the samples of each member count, from 0 (not at all) to 1.
            own_index: of the reducer, which trusts itself.
        """
        self._num_members = len(trust)
        self._members = [
            index for index, share in enumerate(trust) if share > 0 or index == own_index
        ]
        self._trust = [1.0 if index == own_index else trust[index] for index in self._members]
        self._own = self._members.index(own_index)
        self._claims = [1.0] * len(self._members)
        self._distance2 = [0.0] * len(self._members)
        self._change2 = [0.0] * len(self._members)
        self._dot = [0.0] * len(self._members)

    @property
    def num_members(self) -> int:
        """Of the group, those that are not trusted too."""
        return self._num_members

    def merge(self, parts: Sequence[Tensor], weights: Sequence[float], start: Tensor) -> Tensor:
        """Merge the next part.

        Args:
            parts: what each member sent, all of one shape and finite.
            weights: the samples that each claims.
            start: this part of the last agreed weights, as this replica knows them.

        Returns:
            Float32, of the same shape.
        """
        members_MP = torch.stack([parts[index].float().flatten() for index in self._members])
        members_MP.clamp_(-_LARGEST, _LARGEST)
        self._claims = [weights[index] for index in self._members]
        shares = [
            weight * trust
            for weight, trust in zip(capped_weights(self._claims), self._trust, strict=True)
        ]
        is_robust = len(self._members) >= MIN_ROBUST_MEMBERS
        centre_P = median(members_MP) if is_robust else members_MP[self._own]
        self._watch(members_MP, centre_P, start.float().flatten())
        if is_robust:
            merged_P = clipped_mean(members_MP, centre_P, shares)
        else:
            shares_M = torch.tensor(shares, dtype=torch.float32)
            merged_P = (shares_M / shares_M.sum()) @ members_MP
        return merged_P.view_as(start)

    def _watch(self, members_MP: Tensor, centre_P: Tensor, start_P: Tensor) -> None:
        changes_MP = members_MP - start_P
        for totals, found in (
            (self._distance2, (members_MP - centre_P).square().sum(dim=1)),
            (self._change2, changes_MP.square().sum(dim=1)),
            (self._dot, changes_MP @ changes_MP[self._own]),
        ):
            for index, value in enumerate(found.tolist()):
                totals[index] += value

    def observations(self) -> dict[int, Observation]:
        """Of the other trusted members by index, over the parts merged so far."""
        changes = [math.sqrt(value) for value in self._change2]
        own = changes[self._own]
        agreements = [
            dot / (change * own) if change * own else 0.0
            for dot, change in zip(self._dot, changes, strict=True)
        ]
        distances = [math.sqrt(value) for value in self._distance2]
        is_robust = len(self._members) >= MIN_ROBUST_MEMBERS
        usual_distance = statistics.median_low(distances) if is_robust else math.inf
        usual_change = statistics.median_low(changes) if is_robust else changes[self._own]
        usual_claim = statistics.median_low(self._claims) if is_robust else self._claims[self._own]
        others = sorted(each for index, each in enumerate(agreements) if index != self._own)
        usual_agreement = others[3 * len(others) // 4] if is_robust else 1.0
        return {
            member: Observation(
                distance=_ratio(distances[index], usual_distance),
                change=_ratio(changes[index], usual_change),
                agreement=agreements[index],
                usual_agreement=usual_agreement,
                claim=_ratio(self._claims[index], usual_claim),
            )
            for index, member in enumerate(self._members)
            if index != self._own
        }


def _ratio(value: float, usual: float) -> float:
    """How many times the usual; 1 where there is nothing to compare."""
    return value / usual if usual > 0 else 1.0
