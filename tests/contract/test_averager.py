"""What every `GroupAverager` promises, in memory and over hivemind.

Members of one test begin one after another in the main thread and finish together in threads, as
separate programs would.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from bt_p2p.averaging.averager import GroupAverage, GroupAverager, PartnerReport, PendingAverage
from bt_p2p.averaging.schedule import matchmaking_s
from bt_p2p.clock import SystemClock
from bt_p2p.errors import AveragingError, GroupNotFormedError, RoundFailedError
from bt_p2p.protocol.limits import LATE_PARTNER_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.testing.averager import AveragingHub, InMemoryAverager
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.tiny import tiny_manifest

SHAPES = {"matrix": (37, 51), "vector": (300,), "other": (5, 4, 3)}
TOLERANCE = 1e-6
Weights = dict[str, Tensor]
Outcome = GroupAverage | AveragingError


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Makes averagers that can find each other, and knows when their rounds end."""

    manifest: RunManifest
    make: Callable[[int, RunManifest, int, Mapping[str, Sequence[int]]], GroupAverager]
    """An averager of the peer with this index, for a run, a block and shapes."""
    peer_ids: Sequence[str]
    """Of members 0, 1 and 2."""
    next_end_s: Callable[[], float]
    """A moment so far away that all members find each other before it."""
    reach: Callable[[float], object]
    """Wait for a moment."""
    timeout_s: float
    """For `finish`, long enough for a healthy round."""
    lone_s: float
    """Longest time a lone member may wait after it began."""

    def averager(self, index: int, *, block: int = 0) -> GroupAverager:
        """An averager of the standard run."""
        return self.make(index, self.manifest, block, SHAPES)


@pytest.fixture(params=["memory", pytest.param("hivemind", marks=pytest.mark.swarm)])
def meeting(request) -> Iterator[Meeting]:
    """A place to meet for members 0, 1 and 2, which are different peers."""
    from tests.swarm.names import unique_name

    manifest = tiny_manifest(unique_name(), round_s=4)
    with contextlib.ExitStack() as stack:
        if request.param == "memory":
            clock = ManualClock()
            hub = AveragingHub(clock)

            def make(index, manifest, block, shapes):
                return InMemoryAverager(hub, manifest, block, shapes, peer_id=f"peer-{index}")

            def reach(moment_s):
                clock.set_now_s(max(clock.now_s(), moment_s + LATE_PARTNER_S))

            yield Meeting(
                manifest=manifest,
                make=make,
                peer_ids=[f"peer-{index}" for index in range(3)],
                next_end_s=clock.now_s,
                reach=reach,
                timeout_s=0.1,
                lone_s=0.2,
            )
            return
        from bt_p2p.swarm.averager import HivemindAverager
        from tests.swarm.waiting import wait_for_time

        peers = request.getfixturevalue("hivemind_peers")
        search_s = matchmaking_s(manifest.rounds.round_s) + 0.5

        def make_real(index, manifest, block, shapes):
            averager = HivemindAverager(peers[index].swarm.dht, manifest, block, shapes)
            stack.callback(averager.stop)
            return averager

        yield Meeting(
            manifest=manifest,
            make=make_real,
            peer_ids=[peer.swarm.peer_id for peer in peers],
            next_end_s=lambda: SystemClock().now_s() + search_s,
            reach=wait_for_time,
            timeout_s=12.0,
            lone_s=search_s + LATE_PARTNER_S + 2.0,
        )


def random_weights(index: int, shapes: Mapping[str, Sequence[int]] = SHAPES) -> Weights:
    """Other tensors for every member, between -1 and 1."""
    generator = torch.Generator().manual_seed(100 + index)
    return {name: 2 * torch.rand(shape, generator=generator) - 1 for name, shape in shapes.items()}


def mean_of(weights: Sequence[Weights], samples: Sequence[int]) -> Weights:
    """The sample-weighted mean, in double precision."""
    total = sum(samples)
    return {
        name: sum(
            member[name].double() * (count / total)
            for member, count in zip(weights, samples, strict=True)
        )
        for name in weights[0]
    }


def largest_difference(first: Weights, second: Weights) -> float:
    """Over all elements of all tensors, which must have the same names and shapes."""
    assert first.keys() == second.keys()
    assert [tensor.shape for tensor in first.values()] == [second[name].shape for name in first]
    return max(
        float((tensor.double() - second[name].double()).abs().max())
        for name, tensor in first.items()
    )


def finish_all(
    pending: Sequence[PendingAverage],
    weights: Sequence[Weights],
    samples: Sequence[int],
    *,
    timeout_s: float,
) -> list[Outcome]:
    """All members bring their weights at the same time; what each of them got."""

    def finish(member: PendingAverage, own: Weights, num_samples: int) -> Outcome:
        try:
            start = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
            return member.finish(own, start=start, num_samples=num_samples, timeout_s=timeout_s)
        except AveragingError as exc:
            return exc

    with ThreadPoolExecutor(len(pending)) as pool:
        return list(pool.map(finish, pending, weights, samples))


def begin_all(averagers: Sequence[GroupAverager], ends_at_s: float) -> list[PendingAverage]:
    """Member i reports round i."""
    return [
        averager.begin(PartnerReport(round_index=index), ends_at_s=ends_at_s)
        for index, averager in enumerate(averagers)
    ]


@pytest.mark.parametrize("samples", [[96, 32], [7, 2, 20]], ids=["two", "three"])
def test_members_get_the_sample_weighted_mean_of_what_all_sent(meeting, samples):
    """Within 1e-6, the same bits for all, everybody's report, and the weights given untouched."""
    size = len(samples)
    weights = [random_weights(index) for index in range(size)]
    given = [{name: tensor.clone() for name, tensor in own.items()} for own in weights]
    averagers = [meeting.averager(index) for index in range(size)]
    pending = begin_all(averagers, meeting.next_end_s())

    outcomes = finish_all(pending, weights, samples, timeout_s=meeting.timeout_s)

    assert [] == [outcome for outcome in outcomes if isinstance(outcome, AveragingError)]
    expected = mean_of(weights, samples)
    for index, outcome in enumerate(outcomes):
        assert TOLERANCE > largest_difference(expected, outcome.weights)
        assert 0.0 == largest_difference(outcomes[0].weights, outcome.weights)
        assert 0.1 < largest_difference(weights[index], outcome.weights)  # it did average
        others = sorted(set(range(size)) - {index})
        assert others == sorted(report.round_index for report in outcome.partners.values())
        assert {torch.float32} == {tensor.dtype for tensor in outcome.weights.values()}
    assert 0.0 == max(map(largest_difference, given, weights))


def test_one_round_after_another_uses_the_weights_of_its_own(meeting):
    """Nothing of the first round is left in the second; no samples count as one."""
    averagers = [meeting.averager(index) for index in range(2)]
    for round_index, samples in enumerate([[1, 3], [4, 0]]):
        weights = [random_weights(10 * round_index + index) for index in range(2)]
        pending = begin_all(averagers, meeting.next_end_s())
        outcomes = finish_all(pending, weights, samples, timeout_s=meeting.timeout_s)
        expected = mean_of(weights, [max(1, count) for count in samples])
        for outcome in outcomes:
            assert TOLERANCE > largest_difference(expected, outcome.weights)


def test_the_average_is_the_members_own_copy(meeting):
    """A member that writes into it changes nobody else's, nor the next round."""
    averagers = [meeting.averager(index) for index in range(2)]
    weights = [random_weights(index) for index in range(2)]
    pending = begin_all(averagers, meeting.next_end_s())
    first, second = finish_all(pending, weights, [1, 1], timeout_s=meeting.timeout_s)
    for tensor in first.weights.values():
        tensor.fill_(math.nan)
    assert TOLERANCE > largest_difference(mean_of(weights, [1, 1]), second.weights)


def test_a_lone_member_is_told_so_in_bounded_time(meeting):
    """GroupNotFormedError soon after the round's end, not at the transfer's deadline."""
    own = random_weights(0)
    given = {name: tensor.clone() for name, tensor in own.items()}
    averager = meeting.averager(0)
    started_s = SystemClock().monotonic_s()
    ends_at_s = meeting.next_end_s()
    pending = begin_all([averager], ends_at_s)
    meeting.reach(ends_at_s)
    [outcome] = finish_all(pending, [own], [1], timeout_s=meeting.timeout_s)
    assert isinstance(outcome, GroupNotFormedError)
    assert meeting.lone_s > SystemClock().monotonic_s() - started_s
    assert 0.0 == largest_difference(given, own)


def test_other_runs_blocks_and_shapes_never_mix(meeting):
    """Four members that agree on the moment and on nothing else: all stay alone."""
    other_run = tiny_manifest(meeting.manifest.name, seed=1)
    other_shapes = SHAPES | {"vector": (301,)}
    averagers = [
        meeting.make(0, meeting.manifest, 0, SHAPES),
        meeting.make(1, meeting.manifest, 1, SHAPES),
        meeting.make(2, other_run, 0, SHAPES),
        meeting.make(1, meeting.manifest, 0, other_shapes),
    ]
    weights = [*(random_weights(index) for index in range(3)), random_weights(3, other_shapes)]
    ends_at_s = meeting.next_end_s()
    pending = begin_all(averagers, ends_at_s)
    meeting.reach(ends_at_s)
    outcomes = finish_all(pending, weights, [1] * 4, timeout_s=meeting.timeout_s)
    assert [GroupNotFormedError] * 4 == [type(outcome) for outcome in outcomes]


def survivors_are_whole(outcomes: Sequence[Outcome], expected: Weights) -> bool:
    """Each survivor got the complete average of the survivors, or an error."""
    return all(
        isinstance(outcome, AveragingError)
        or TOLERANCE > largest_difference(expected, outcome.weights)
        for outcome in outcomes
    )


@pytest.mark.parametrize("moment", ["at once", "after the group formed"])
def test_a_member_that_cancels_leaves_no_torn_average(meeting, moment):
    """The others get their own complete average, or an error; and the next round works."""
    averagers = [meeting.averager(index) for index in range(3)]
    weights = [random_weights(index) for index in range(3)]
    given = [{name: tensor.clone() for name, tensor in own.items()} for own in weights]
    samples = [3, 5, 9]
    ends_at_s = meeting.next_end_s()
    pending = begin_all(averagers, ends_at_s)
    if moment == "after the group formed":
        meeting.reach(ends_at_s + 0.3)
    pending[2].cancel()
    pending[2].cancel()  # harmless
    outcomes = finish_all(pending[:2], weights[:2], samples[:2], timeout_s=meeting.timeout_s)
    assert survivors_are_whole(outcomes, mean_of(weights[:2], samples[:2])), outcomes
    assert 0.0 == max(map(largest_difference, given, weights))

    pending = begin_all(averagers, meeting.next_end_s())
    outcomes = finish_all(pending, weights, samples, timeout_s=meeting.timeout_s)
    assert [] == [outcome for outcome in outcomes if isinstance(outcome, AveragingError)]
    assert survivors_are_whole(outcomes, mean_of(weights, samples))


def test_a_cancelled_round_cannot_be_finished(meeting):
    """RoundFailedError, at once."""
    [pending] = begin_all([meeting.averager(0)], meeting.next_end_s())
    pending.cancel()
    started_s = SystemClock().monotonic_s()
    own = random_weights(0)
    with pytest.raises(RoundFailedError):
        pending.finish(own, start=own, num_samples=1, timeout_s=meeting.timeout_s)
    assert 1.0 > SystemClock().monotonic_s() - started_s


def test_a_member_that_never_brings_its_weights_fails_the_round_in_time(meeting):
    """The others wait for it no longer than they said, mix nothing, and know whom they waited for."""
    averagers = [meeting.averager(index) for index in range(3)]
    weights = [random_weights(index) for index in range(3)]
    ends_at_s = meeting.next_end_s()
    pending = begin_all(averagers, ends_at_s)
    meeting.reach(ends_at_s)
    started_s = SystemClock().monotonic_s()
    outcomes = finish_all(pending[:2], weights[:2], [3, 5], timeout_s=meeting.timeout_s)
    assert meeting.timeout_s + 1.0 > SystemClock().monotonic_s() - started_s
    assert survivors_are_whole(outcomes, mean_of(weights[:2], [3, 5])), outcomes
    late = [outcome.late for outcome in outcomes if isinstance(outcome, RoundFailedError)]
    assert all(each <= {meeting.peer_ids[2]} for each in late), late
    assert 2 > len(late) or any(late), outcomes
    pending[2].cancel()


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
def test_a_member_with_broken_weights_reaches_nobody(meeting, value):
    """It gets an error; the others an error or their own complete average."""
    averagers = [meeting.averager(index) for index in range(3)]
    weights = [random_weights(index) for index in range(3)]
    weights[2]["vector"][17] = value
    pending = begin_all(averagers, meeting.next_end_s())
    started_s = SystemClock().monotonic_s()
    outcomes = finish_all(pending, weights, [3, 5, 9], timeout_s=meeting.timeout_s)
    assert isinstance(outcomes[2], RoundFailedError)
    assert survivors_are_whole(outcomes[:2], mean_of(weights[:2], [3, 5])), outcomes
    assert meeting.timeout_s + 1.0 > SystemClock().monotonic_s() - started_s


def test_a_member_far_from_the_others_is_pulled_back_and_seen(meeting):
    """Its weights move nobody far, and each of the others knows whose they were."""
    averagers = [meeting.averager(index) for index in range(3)]
    weights = [random_weights(index) for index in range(3)]
    for tensor in weights[2].values():
        tensor.mul_(1000)
    pending = begin_all(averagers, meeting.next_end_s())
    outcomes = finish_all(pending, weights, [1, 1, 1], timeout_s=meeting.timeout_s)
    assert [] == [outcome for outcome in outcomes if isinstance(outcome, AveragingError)]
    for index, outcome in enumerate(outcomes[:2]):
        assert 3.0 > largest_difference(weights[index], outcome.weights)
        merges = sum(
            share.num_elements
            for share in outcome.shares
            if share.peer_id == meeting.peer_ids[index]
        )
        if merges:  # hivemind may leave a member without a share, and then it sees nobody's
            assert set(meeting.peer_ids) - {meeting.peer_ids[index]} == outcome.observations.keys()
            assert 100 < outcome.observations[meeting.peer_ids[2]].distance
            assert 2 > outcome.observations[meeting.peer_ids[1 - index]].distance
        assert set(meeting.peer_ids) >= {share.peer_id for share in outcome.shares}
        num_elements = sum(tensor.numel() for tensor in outcome.weights.values())
        assert num_elements == sum(share.num_elements for share in outcome.shares)


def test_a_member_that_is_not_trusted_is_not_met(meeting):
    """Neither leads it nor is led by it, though it trusts the other; and later it is met again."""
    averagers = [meeting.averager(index) for index in range(2)]
    weights = [random_weights(index) for index in range(2)]
    for trust, is_met in ((0.0, False), (0.5, True)):
        ends_at_s = meeting.next_end_s()
        pending = [
            averagers[0].begin(
                PartnerReport(round_index=0),
                ends_at_s=ends_at_s,
                trust={meeting.peer_ids[1]: trust},
            ),
            averagers[1].begin(PartnerReport(round_index=0), ends_at_s=ends_at_s),
        ]
        if not is_met:
            meeting.reach(ends_at_s)
        outcomes = finish_all(pending, weights, [1, 1], timeout_s=meeting.timeout_s)
        expected = GroupAverage if is_met else GroupNotFormedError
        assert [expected] * 2 == [type(outcome) for outcome in outcomes]


def test_stop_ends_an_averager_twice_without_harm(meeting):
    """Also with a round that has begun and will never be finished."""
    averager = meeting.averager(0)
    begin_all([averager], meeting.next_end_s())
    averager.stop()
    averager.stop()
