"""What a round says against the replicas that took part. Pure; `memory` adds it up.

The thresholds are between what was measured of honest replicas and of attackers (design note 0013).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bt_p2p.averaging.averager import GroupAverage
from bt_p2p.averaging.memory import REFUSE_AT, Evidence
from bt_p2p.averaging.merge import Observation
from bt_p2p.protocol.limits import MAX_WEIGHT_RATIO

FAR = 4.0
"""Times the usual distance from the group; honest replicas that missed three rounds are below."""
MIN_AGREEMENT = 0.4
"""Of the usual agreement; honest replicas that were in the last average are above 0.9."""
STALE = 0.1
"""Of the change that the claimed samples make elsewhere."""
MAX_GAP_SHARE = 0.25
"""Of what a replica has learned in a round, the average may lose this much on held-out text."""
_CLEAR_AGREEMENT = 0.1
"""Below it even the group's own members agree on nothing."""
_AGAINST = -0.1
"""Cosine of two changes that are against each other, not merely unlike."""
_PER_ROUND = 1.6
"""At most, from what may be chance: two rounds in a row are not, and come to `REFUSE_AT`."""
_BACKWARDS = -0.5
"""Of the usual agreement; honest replicas that missed some rounds are above."""
_MISSED_SHARE = 1 / 3
"""Of what a direction says, for a replica that was not in the last average."""
_STALE_STRENGTH = 0.5
_CLEAR_PART = 0.2
"""Sum of what agreements are short of; less is chance."""
_MIN_ERROR_NATS = 0.001
"""Windows of a very short text are the same ones, which says nothing of their error."""


def late_senders(progress: Mapping[str, int], *, own_id: str) -> frozenset[str]:
    """Members that are behind, judged by the parts that came to a share before the average failed.

    Every part waits for all members, so that those who are on time are one part ahead. If all others
    are behind, this replica is the slow one, or alone with one other: then nobody is late.

    Args:
        progress: parts that have come, by peer id.
        own_id: of this replica.
    """
    others = {peer: num for peer, num in progress.items() if peer != own_id}
    foremost = max(others.values(), default=0)
    return frozenset(peer for peer, num in others.items() if num < foremost)


def against_sender(seen: Observation, *, was_with_us: bool) -> Evidence | None:
    """What a reducer's view of a member's weights says against it.

    Args:
        seen: the view.
        was_with_us: it was in the average that this replica adopted last. Who was not comes from
            elsewhere, so that its direction says less.
    """
    found = [
        evidence
        for evidence in (_far(seen), _elsewhere(seen, was_with_us=was_with_us), _stale(seen))
        if evidence is not None
    ]
    return max(found, key=lambda evidence: evidence.strength, default=None)


def _far(seen: Observation) -> Evidence | None:
    if seen.distance > FAR:
        reason = f"its weights are {seen.distance:.1f} x as far from the group's as usual"
        strength = min(REFUSE_AT, seen.distance / FAR - 1)
        return Evidence(strength=strength, reason=reason, may_be_drift=strength < REFUSE_AT)
    limit = FAR * min(MAX_WEIGHT_RATIO, max(1.0, seen.claim))
    if seen.change > limit:
        reason = f"norm of change {seen.change:.1f} x the usual"
        strength = min(REFUSE_AT, seen.change / limit - 1)
        return Evidence(strength=strength, reason=reason, may_be_drift=strength < REFUSE_AT)
    return None


def _elsewhere(seen: Observation, *, was_with_us: bool) -> Evidence | None:
    if seen.change < STALE:  # too small to have a direction, or to do harm by it
        return None
    is_pair = seen.usual_agreement == 1.0  # only what goes against ours is strange
    if is_pair:
        shortfall = _AGAINST - seen.agreement
    elif seen.usual_agreement >= _CLEAR_AGREEMENT:
        shortfall = 1 - seen.agreement / (MIN_AGREEMENT * seen.usual_agreement)
    else:
        return None
    if shortfall <= 0:
        return None
    is_against = seen.agreement < _BACKWARDS * seen.usual_agreement
    if not (is_against or was_with_us):
        shortfall *= _MISSED_SHARE
    words = "against" if seen.agreement < 0 else "elsewhere than"
    whose = "ours" if is_pair else "the group's"
    return Evidence(
        strength=min(_PER_ROUND, shortfall),
        reason=f"its weights move {words} {whose}",
        may_be_drift=not is_against,
    )


def _stale(seen: Observation) -> Evidence | None:
    if seen.change >= STALE * min(1.0, seen.claim):
        return None
    return Evidence(
        strength=_STALE_STRENGTH, reason="its weights do not change as the samples it claims would"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _ShareView:
    """What a replica sees of a share of the average."""

    moved: float
    """Norm of average minus own, over that of own minus start."""
    agreement: float
    """Cosine of average minus start and own minus start."""


def against_reducers(
    average: GroupAverage, own: Mapping[str, Tensor], start: Mapping[str, Tensor], *, peer_id: str
) -> dict[str, Evidence]:
    """What the shares of the average say against the members that made them.

    Measured by the share that this replica made itself; says nothing when it made none, or has not
    trained.

    Args:
        average: the result of a round.
        own: what this replica brought.
        start: what it began the round with.
        peer_id: of this replica.
    """
    views = _views(average, own, start)
    mine = views.pop(peer_id, None)
    found: dict[str, Evidence] = {}
    if mine is None:
        return found
    for maker, view in views.items():
        limit = FAR * max(mine.moved, 1.0)
        if view.moved > limit:
            reason = f"its share of an average moved {view.moved / limit * FAR:.1f} x the usual"
            strength = min(REFUSE_AT, view.moved / limit)
            found[maker] = Evidence(strength=strength, reason=reason)
        elif view.agreement < _AGAINST and mine.agreement > -_AGAINST:
            reason = "its share of an average moves against what all members trained"
            found[maker] = Evidence(strength=_PER_ROUND, reason=reason)
    return found


def _views(
    average: GroupAverage, own: Mapping[str, Tensor], start: Mapping[str, Tensor]
) -> dict[str, _ShareView]:
    """By the member that made the share; sums over pieces, so that no vector is copied whole."""
    makers = [share.peer_id for share in average.shares]
    ends = list(itertools.accumulate(share.num_elements for share in average.shares))
    trained2, moved2, change2, dot = ([0.0] * len(makers) for _ in range(4))
    first = index = 0
    for name, tensor in average.weights.items():
        averaged_P, own_P, start_P = (each.flatten() for each in (tensor, own[name], start[name]))
        done = 0
        while done < len(averaged_P) and index < len(makers):
            piece = slice(done, min(len(averaged_P), ends[index] - first))
            trained_P = own_P[piece] - start_P[piece]
            change_P = averaged_P[piece] - start_P[piece]
            trained2[index] += float(trained_P @ trained_P)
            change2[index] += float(change_P @ change_P)
            dot[index] += float(trained_P @ change_P)
            moved2[index] += float((averaged_P[piece] - own_P[piece]).square().sum())
            done = piece.stop
            while index < len(makers) and ends[index] <= first + done:
                index += 1
        first += len(averaged_P)
    return {
        maker: _ShareView(
            moved=math.sqrt(moved2[index] / trained2[index]),
            agreement=dot[index] / math.sqrt(trained2[index] * change2[index])
            if change2[index]
            else 0.0,
        )
        for index, maker in enumerate(makers)
        if trained2[index]
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutScores:
    """Cross entropies of the same private held-out windows, nats per byte of each window."""

    average_N: Tensor
    own_N: Tensor
    start_N: Tensor


def loss_of_average(scores: HeldOutScores) -> tuple[float, float]:
    """How much worse the average is than it may be, nats per byte, and the standard error of that.

    It may be worse than our own weights by a share of what these learned in the round: a replica
    that is faster than the others gives up a little, and gets it back from them in the next rounds.
    """
    if not bool(torch.isfinite(scores.average_N).all()):
        return math.inf, 0.0
    if not bool(torch.isfinite(scores.own_N).all()):
        return -math.inf, 0.0
    learned = max(0.0, float((scores.start_N - scores.own_N).mean()))
    worse_N = (scores.average_N - scores.own_N).double()
    standard_error = float(worse_N.std()) / math.sqrt(len(worse_N))
    return float(worse_N.mean()) - MAX_GAP_SHARE * learned, max(_MIN_ERROR_NATS, standard_error)


def against_partners(
    excess: float,
    standard_error: float,
    partners: Collection[str],
    observations: Mapping[str, Observation],
) -> dict[str, Evidence]:
    """What an average that is worse than it may be says against those who were in it.

    Suspicion is divided between them by how much less than usual each agrees with us; evenly where all
    agree alike.

    Args:
        excess: nats per byte over what it may be.
        standard_error: of that.
        partners: the other members.
        observations: what we saw of them, if we made a share.
    """
    if not partners or not excess > standard_error:
        return {}
    strength = min(_PER_ROUND, excess / standard_error if standard_error else _PER_ROUND)
    reason = f"averages with it are {excess:.3f} nats/byte worse on held-out text than they may be"
    parts = {
        peer_id: max(0.0, seen.usual_agreement - seen.agreement) / max(seen.usual_agreement, 1e-3)
        for peer_id, seen in observations.items()
        if peer_id in partners
    }
    total = sum(parts.values())
    if total < _CLEAR_PART:
        parts, total = dict.fromkeys(partners, 1.0), len(partners)
    return {
        peer_id: Evidence(strength=strength * part / total, reason=reason, may_be_drift=True)
        for peer_id, part in parts.items()
        if part
    }
