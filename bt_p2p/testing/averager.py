"""The `GroupAverager` port in memory: replicas meet on one hub.

Members that began the same round of the same block, with the same shapes, form a group. It waits
until each of them brought its weights or cancelled; all members see the same outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bt_p2p.averaging.admission import is_finite
from bt_p2p.averaging.averager import GroupAverage, PartnerReport
from bt_p2p.clock import Clock, SystemClock
from bt_p2p.errors import GroupNotFormedError, RoundFailedError, SwarmError
from bt_p2p.protocol.limits import LATE_PARTNER_S
from bt_p2p.protocol.manifest import RunManifest

_POLL_S = 0.005
"""A clock that stands still tells nobody when it moves."""

_GroupKey = tuple[str, int, float, tuple[tuple[str, tuple[int, ...]], ...]]


@dataclass
class _Group:
    """One round of one block; guarded by the hub's lock."""

    members: dict[str, PartnerReport] = field(default_factory=dict)
    brought: dict[str, tuple[dict[str, Tensor], int]] = field(default_factory=dict)
    average: dict[str, Tensor] | None = None
    problem: str = ""

    @property
    def is_over(self) -> bool:
        return self.average is not None or bool(self.problem)


class AveragingHub:
    """Where averagers of one test meet."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty; the clock gives DHT time and is the system's by default."""
        self._clock = SystemClock() if clock is None else clock
        self._timer = SystemClock()
        self._changed = threading.Condition()
        self._groups: dict[_GroupKey, _Group] = {}

    def join(self, key: _GroupKey, peer_id: str, report: PartnerReport) -> _Group:
        """Become a member of a round; of a new one if the round is over already."""
        with self._changed:
            group = self._groups.get(key)
            if group is None or group.is_over:
                group = self._groups[key] = _Group()
            group.members[peer_id] = report
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
        weights: dict[str, Tensor],
        num_samples: int,
        *,
        ends_at_s: float,
        timeout_s: float,
    ) -> GroupAverage:
        """Contribute and wait for the outcome, as `PendingAverage.finish`."""
        deadline_s = self._timer.monotonic_s() + timeout_s
        with self._changed:
            if peer_id not in group.members:
                raise RoundFailedError("this round was cancelled")
            if not is_finite(weights):
                group.problem = f"weights of …{peer_id[-6:]} are not finite"
            group.brought[peer_id] = (weights, max(1, num_samples))
            self._settle(group)
            self._changed.notify_all()
            while not group.is_over:
                left_s = deadline_s - self._timer.monotonic_s()
                is_alone = len(group.members) == 1
                is_late = self._clock.now_s() >= ends_at_s + LATE_PARTNER_S
                if is_alone and (is_late or left_s <= 0):
                    group.problem = "nobody came"
                    raise GroupNotFormedError("no other replica was there in time")
                if left_s <= 0:
                    group.problem = f"the average took over {timeout_s:.0f} s"
                    self._changed.notify_all()
                    break
                self._changed.wait(min(left_s, _POLL_S))
            if group.average is None:
                raise RoundFailedError(group.problem)
            return GroupAverage(
                weights={name: tensor.clone() for name, tensor in group.average.items()},
                partners={
                    member: report for member, report in group.members.items() if member != peer_id
                },
            )

    def _settle(self, group: _Group) -> None:
        """Average once everybody's weights are in."""
        if group.is_over or len(group.members) < 2 or group.members.keys() != group.brought.keys():
            return
        total = sum(num_samples for _, num_samples in group.brought.values())
        contributions = list(group.brought.values())
        group.average = {
            name: torch.stack(
                [weights[name].double() * (samples / total) for weights, samples in contributions]
            )
            .sum(dim=0)
            .float()
            for name in contributions[0][0]
        }


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
        self._shapes = tuple((name, tuple(shape)) for name, shape in shapes.items())
        self._is_stopped = False

    def begin(self, report: PartnerReport, *, ends_at_s: float) -> InMemoryPendingAverage:
        """Start looking for a group that averages at a moment.

        Raises:
            SwarmError: the averager was stopped.
        """
        if self._is_stopped:
            raise SwarmError("the averager has ended; restart the node")
        group = self._hub.join((*self._prefix, ends_at_s, self._shapes), self._peer_id, report)
        return InMemoryPendingAverage(self._hub, group, self._peer_id, ends_at_s)

    def stop(self) -> None:
        """End the averager; idempotent."""
        self._is_stopped = True


class InMemoryPendingAverage:
    """One round on the hub; see `averaging.averager.PendingAverage`."""

    def __init__(self, hub: AveragingHub, group: _Group, peer_id: str, ends_at_s: float) -> None:
        """Use `InMemoryAverager.begin`."""
        self._hub = hub
        self._group = group
        self._peer_id = peer_id
        self._ends_at_s = ends_at_s

    def finish(
        self, weights: Mapping[str, Tensor], *, num_samples: int, timeout_s: float
    ) -> GroupAverage:
        """Bring the weights, wait for the group, and return its average."""
        copies = {name: tensor.detach().cpu().float().clone() for name, tensor in weights.items()}
        return self._hub.bring(
            self._group,
            self._peer_id,
            copies,
            num_samples,
            ends_at_s=self._ends_at_s,
            timeout_s=timeout_s,
        )

    def cancel(self) -> None:
        """Give up the round; the others go on without us."""
        self._hub.leave(self._group, self._peer_id)
