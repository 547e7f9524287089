"""The `GroupAverager` port in memory: replicas meet on one hub.

Members that began the same round of the same block, with the same shapes, form a group, unless one
refuses another. It waits until each of them brought its weights or cancelled; then each merges a
share, and all see the same average.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bt_p2p.averaging.admission import is_finite
from bt_p2p.averaging.averager import GroupAverage, PartnerReport, Share
from bt_p2p.averaging.evidence import late_senders
from bt_p2p.averaging.merge import Observation, ShareMerger
from bt_p2p.averaging.schedule import late_partner_s
from bt_p2p.clock import Clock, SystemClock
from bt_p2p.errors import GroupNotFormedError, RoundFailedError, SwarmError
from bt_p2p.protocol.manifest import RunManifest

_POLL_S = 0.005
"""A clock that stands still tells nobody when it moves."""

_GroupKey = tuple[str, int, float, tuple[tuple[str, tuple[int, ...]], ...]]


@dataclass
class _Brought:
    """What one member brought, flat."""

    weights_P: Tensor
    start_P: Tensor
    num_samples: int


@dataclass
class _Group:
    """One round of one block; guarded by the hub's lock."""

    members: dict[str, PartnerReport] = field(default_factory=dict)
    trust: dict[str, Mapping[str, float]] = field(default_factory=dict)
    brought: dict[str, _Brought] = field(default_factory=dict)
    average_P: Tensor | None = None
    shares: tuple[Share, ...] = ()
    observations: dict[str, dict[str, Observation]] = field(default_factory=dict)
    problem: str = ""
    blamed: dict[str, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.average_P is not None or bool(self.problem)

    def takes(self, peer_id: str, trust: Mapping[str, float]) -> bool:
        """Whether nobody in it refuses this peer, nor the other way round."""
        return not self.is_over and all(
            trust.get(member, 1.0) > 0 and self.trust[member].get(peer_id, 1.0) > 0
            for member in self.members
        )


class AveragingHub:
    """Where averagers of one test meet."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty; the clock gives DHT time and is the system's by default."""
        self._clock = SystemClock() if clock is None else clock
        self._timer = SystemClock()
        self._changed = threading.Condition()
        self._groups: dict[_GroupKey, list[_Group]] = {}

    def join(
        self, key: _GroupKey, peer_id: str, report: PartnerReport, trust: Mapping[str, float]
    ) -> _Group:
        """Become a member of a group of this round; of a new one if no other takes it."""
        with self._changed:
            groups = self._groups.setdefault(key, [])
            group = next((each for each in groups if each.takes(peer_id, trust)), None)
            if group is None:
                group = _Group()
                groups.append(group)
            group.members[peer_id] = report
            group.trust[peer_id] = trust
            self._changed.notify_all()
            return group

    def leave(self, group: _Group, peer_id: str) -> None:
        """Cancel; the others go on without this member unless its weights are in already."""
        with self._changed:
            if peer_id not in group.brought and not group.is_over:
                group.members.pop(peer_id, None)
                self._settle(group)
            self._changed.notify_all()

    def bring(
        self,
        group: _Group,
        peer_id: str,
        weights: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        num_samples: int,
        *,
        late_at_s: float,
        timeout_s: float,
    ) -> GroupAverage:
        """Contribute and wait for the outcome, as `PendingAverage.finish`."""
        deadline_s = self._timer.monotonic_s() + timeout_s
        with self._changed:
            if peer_id not in group.members:
                raise RoundFailedError("this round was cancelled")
            if not is_finite(weights):
                group.problem = f"weights of …{peer_id[-6:]} are not finite"
                group.blamed[peer_id] = "its weights are not finite"
            group.brought[peer_id] = _Brought(
                _flat(weights), _flat({name: start[name] for name in weights}), max(1, num_samples)
            )
            self._settle(group)
            self._changed.notify_all()
            while not group.is_over:
                left_s = deadline_s - self._timer.monotonic_s()
                is_alone = len(group.members) == 1
                is_late = self._clock.now_s() >= late_at_s
                if is_alone and (is_late or left_s <= 0):
                    group.problem = "nobody came"
                    raise GroupNotFormedError("no other replica was there in time")
                if left_s <= 0:
                    group.problem = f"the average took over {timeout_s:.0f} s"
                    self._changed.notify_all()
                    break
                self._changed.wait(min(left_s, _POLL_S))
            if group.average_P is None:
                progress = {member: int(member in group.brought) for member in group.members}
                raise RoundFailedError(
                    group.problem,
                    blamed=group.blamed,
                    late=late_senders(progress, own_id=peer_id),
                )
            parts = torch.split(group.average_P, [tensor.numel() for tensor in weights.values()])
            return GroupAverage(
                weights={
                    name: part.view_as(weights[name]).clone()
                    for name, part in zip(weights, parts, strict=True)
                },
                partners={
                    member: report for member, report in group.members.items() if member != peer_id
                },
                shares=group.shares,
                observations=group.observations[peer_id],
            )

    def _settle(self, group: _Group) -> None:
        """Average once everybody's weights are in: every member merges a share."""
        if group.is_over or len(group.members) < 2 or group.members.keys() != group.brought.keys():
            return
        members = list(group.members)
        brought = [group.brought[member] for member in members]
        total = len(brought[0].weights_P)
        borders = [index * total // len(members) for index in range(len(members) + 1)]
        merged, shares = [], []
        for index, member in enumerate(members):
            part = slice(borders[index], borders[index + 1])
            trust = [group.trust[member].get(other, 1.0) for other in members]
            merger = ShareMerger(trust, index)
            merged.append(
                merger.merge(
                    [each.weights_P[part] for each in brought],
                    [each.num_samples for each in brought],
                    brought[index].start_P[part],
                )
            )
            shares.append(Share(peer_id=member, num_elements=part.stop - part.start))
            group.observations[member] = {
                members[other]: seen for other, seen in merger.observations().items()
            }
        group.shares = tuple(shares)
        group.average_P = torch.cat(merged)


def _flat(weights: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([tensor.detach().cpu().float().flatten() for tensor in weights.values()])


class InMemoryAverager:
    """One replica's handle on the hub; see `averaging.averager.GroupAverager`."""

    def __init__(
        self,
        hub: AveragingHub,
        manifest: RunManifest,
        block: int,
        shapes: Mapping[str, Sequence[int]],
        *,
        peer_id: str,
    ) -> None:
        """Wrap; the other arguments are those of the hivemind averager."""
        self._hub = hub
        self._peer_id = peer_id
        self._prefix = (manifest.run_id, block)
        self._late_s = late_partner_s(manifest.rounds.round_s)
        self._shapes = tuple((name, tuple(shape)) for name, shape in shapes.items())
        self._is_stopped = False

    def begin(
        self, report: PartnerReport, *, ends_at_s: float, trust: Mapping[str, float] | None = None
    ) -> InMemoryPendingAverage:
        """Start looking for a group that averages at a moment.

        Raises:
            SwarmError: the averager was stopped.
        """
        if self._is_stopped:
            raise SwarmError("the averager has ended; restart the node")
        key = (*self._prefix, ends_at_s, self._shapes)
        group = self._hub.join(key, self._peer_id, report, trust or {})
        return InMemoryPendingAverage(self._hub, group, self._peer_id, ends_at_s + self._late_s)

    def stop(self) -> None:
        """End the averager; idempotent."""
        self._is_stopped = True


class InMemoryPendingAverage:
    """One round on the hub; see `averaging.averager.PendingAverage`."""

    def __init__(self, hub: AveragingHub, group: _Group, peer_id: str, late_at_s: float) -> None:
        """Use `InMemoryAverager.begin`."""
        self._hub = hub
        self._group = group
        self._peer_id = peer_id
        self._late_at_s = late_at_s

    def finish(
        self,
        weights: Mapping[str, Tensor],
        *,
        start: Mapping[str, Tensor],
        num_samples: int,
        timeout_s: float,
    ) -> GroupAverage:
        """Bring the weights, wait for the group, and return its average."""
        return self._hub.bring(
            self._group,
            self._peer_id,
            weights,
            start,
            num_samples,
            late_at_s=self._late_at_s,
            timeout_s=timeout_s,
        )

    def cancel(self) -> None:
        """Give up the round; the others go on without us."""
        self._hub.leave(self._group, self._peer_id)
