"""Rounds of one replica, on a clock that moves by its steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bt_p2p.averaging.averager import GroupAverage, PartnerReport
from bt_p2p.averaging.gate import Gate
from bt_p2p.errors import (
    GroupNotFormedError,
    RoundFailedError,
    RoundTimeoutError,
    SwarmError,
    TrainingError,
)
from bt_p2p.model.device import DeviceChoice
from bt_p2p.protocol.limits import MAX_ROUND_LAG
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.tiny import tiny_manifest
from bt_p2p.training.data import BatchSource
from bt_p2p.training.trainer import BlockTrainer, StepResult
from node.partners import Partners
from node.reasons.code import ReasonCode
from node.record import NodeRecord
from node.rounds import RoundRunner
from node.snapshot import NodeSnapshot
from node.stop import StopRequest

STEP_S = 0.5
ROUND_S = 4.0
Outcome = Callable[[Mapping[str, Tensor], int], GroupAverage]


class StepTrainer(BlockTrainer):
    """Each step takes half a second of the test's clock."""

    clock: ManualClock
    is_broken = False

    def train_step(self) -> StepResult:
        self.clock.advance(STEP_S)
        result = super().train_step()
        if self.is_broken:
            return StepResult(loss=float("nan"), cross_entropy=float("nan"), num_bytes=0, lr=0.0)
        return result


class ScriptedAverager:
    """A `GroupAverager` whose average a test decides; keeps what it was given."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.begun: list[tuple[int, float]] = []
        self.trust: dict[str, float] = {}
        self.start: dict[str, Tensor] = {}
        self.sent: dict[str, Tensor] = {}
        self.num_cancelled = 0

    def begin(
        self, report: PartnerReport, *, ends_at_s: float, trust: Mapping[str, float] | None = None
    ) -> ScriptedAverager:
        self.trust = dict(trust or {})
        self.begun.append((report.round_index, ends_at_s))
        return self

    def finish(
        self,
        weights: Mapping[str, Tensor],
        *,
        start: Mapping[str, Tensor],
        num_samples: int,
        timeout_s: float,
    ) -> GroupAverage:
        self.start = dict(start)
        self.sent = {name: tensor.clone() for name, tensor in weights.items()}
        return self.outcome(weights, num_samples)

    def cancel(self) -> None:
        self.num_cancelled += 1

    def stop(self) -> None:
        pass


class Bench:
    """A runner and everything around it."""

    def __init__(
        self,
        folder: Path,
        outcome: Outcome,
        partners: int | Partners | SwarmError = 1,
        outer_momentum: float = 0.0,
    ) -> None:
        self.clock = ManualClock(1_000_000.0)
        self.manifest: RunManifest = tiny_manifest(round_s=ROUND_S, outer_momentum=outer_momentum)
        device = DeviceChoice(device=torch.device("cpu"), autocast_bf16=False, reason="test")
        text = np.frombuffer(b"the cat sat on the mat and looked at the rat. " * 40, dtype=np.uint8)
        source = BatchSource(text, self.manifest.model.context, 2)
        self.trainer = StepTrainer(self.manifest, 0, device, source, "me")
        self.trainer.clock = self.clock
        self.averager = ScriptedAverager(outcome)
        snapshot = NodeSnapshot(pid=1, peer_id="me", run_id=self.manifest.run_id)
        self.record = NodeRecord(folder, snapshot, self.clock)
        self.stop = StopRequest()
        self.partners = partners
        self.not_counted: list[list[str]] = []
        self.looked_at_s: list[float] = []
        self.nats_of_average = 1.0
        self.pause_at_s = float("inf")
        self.gate = Gate("me", lambda _weights: [torch.full((4,), n) for n in self.nats()])
        self.runner = RoundRunner(
            self.manifest,
            self.trainer,
            self.averager,
            self.gate,
            look=self.look,
            count_partners=self.count,
            record=self.record,
            stop=self.stop,
            clock=self.clock,
            is_paused=lambda: self.clock.now_s() >= self.pause_at_s,
        )

    def nats(self) -> tuple[float, float, float]:
        """On held-out text: of the average, of own weights, of the start."""
        return self.nats_of_average, 1.0, 1.0

    def look(self) -> None:
        self.looked_at_s.append(self.clock.now_s())

    def count(self, refused: Collection[str]) -> Partners:
        self.not_counted.append(sorted(refused))
        if isinstance(self.partners, SwarmError):
            raise self.partners
        if isinstance(self.partners, Partners):
            return self.partners
        return Partners(num_possible=self.partners, num_expected=self.partners)


def average_at(value: float, round_index: int = 0) -> Outcome:
    """An average of one value, with one partner."""

    def outcome(weights: Mapping[str, Tensor], num_samples: int) -> GroupAverage:
        return GroupAverage(
            weights={name: torch.full_like(tensor, value) for name, tensor in weights.items()},
            partners={"peer": PartnerReport(round_index=round_index)},
        )

    return outcome


def failing_with(error: Exception) -> Outcome:
    """A round that fails."""

    def outcome(weights: Mapping[str, Tensor], num_samples: int) -> GroupAverage:
        raise error

    return outcome


def test_a_round_trains_until_the_common_moment_and_adopts_the_average(tmp_path: Path) -> None:
    """Eight half-second steps fill four seconds; the average replaces the weights."""
    bench = Bench(tmp_path, average_at(0.25))

    result = bench.runner.run_round()

    assert result is not None
    assert (8, 1, 1, "averaged with 1 replica", False) == (
        result.num_steps,
        result.round_index,
        result.partners,
        result.outcome,
        result.is_failure,
    )
    assert [(0, 1_000_004.0)] == bench.averager.begun
    assert all(bool((tensor == 0.25).all()) for tensor in bench.trainer.weights().values())
    assert not any(bool((tensor == 0.25).all()) for tensor in bench.averager.sent.values())


def test_momentum_goes_beyond_the_average_and_serves_the_average(tmp_path: Path) -> None:
    """The next round starts half a move further on; others are shown what was agreed on."""
    bench = Bench(tmp_path, average_at(0.25), outer_momentum=0.5)
    start = bench.trainer.weights()

    result = bench.runner.run_round()

    assert result is not None
    assert all(bool((tensor == 0.25).all()) for tensor in result.weights.values())
    for name, tensor in bench.trainer.weights().items():
        torch.testing.assert_close(0.25 + 0.5 * (0.25 - start[name]), tensor)


def test_a_failed_round_serves_the_own_weights_and_ends_the_momentum(tmp_path: Path) -> None:
    """The round after it begins anew: half of its own move, nothing of those before."""
    bench = Bench(tmp_path, average_at(0.25), outer_momentum=0.5)
    bench.runner.run_round()
    bench.averager.outcome = failing_with(RoundFailedError("lost"))
    failed = bench.runner.run_round()
    assert failed is not None
    own = bench.trainer.weights()
    assert all(torch.equal(own[name], failed.weights[name]) for name in own)
    bench.averager.outcome = average_at(1.0)
    bench.runner.run_round()
    for name, tensor in bench.trainer.weights().items():
        torch.testing.assert_close(1.0 + 0.5 * (1.0 - own[name]), tensor)


def test_a_lone_replica_goes_on_without_looking_for_others(tmp_path: Path) -> None:
    """Nobody to average with: no group is sought, the round counts."""
    bench = Bench(tmp_path, average_at(0.0), partners=0)

    result = bench.runner.run_round()

    assert result is not None
    assert ("alone", 1, False) == (result.outcome, result.round_index, result.is_failure)
    assert [] == bench.averager.begun


@pytest.mark.parametrize(
    "error", [RoundFailedError("lost …abc"), GroupNotFormedError("no other replica")]
)
def test_a_failed_average_keeps_the_own_weights(tmp_path: Path, error: Exception) -> None:
    """What was sent is what is still there, and the reason is told."""
    bench = Bench(tmp_path, failing_with(error))

    result = bench.runner.run_round()

    assert result is not None
    assert (0, True, 1) == (result.partners, result.is_failure, result.round_index)
    assert str(error) in result.outcome
    kept = bench.trainer.weights()
    assert all(torch.equal(kept[name], sent) for name, sent in bench.averager.sent.items())


def test_an_average_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    """NaN from others never reaches the block."""
    bench = Bench(tmp_path, average_at(float("nan")))

    result = bench.runner.run_round()

    assert result is not None
    assert result.is_failure
    assert "not finite" in result.outcome
    assert all(bool(torch.isfinite(tensor).all()) for tensor in bench.trainer.weights().values())


def test_an_average_that_is_worse_on_held_out_text_is_refused(tmp_path: Path) -> None:
    """Once it may have trained apart; after two more it is not met again, and status says why."""
    bench = Bench(tmp_path, average_at(0.25))
    start = bench.trainer.weights()
    bench.nats_of_average = 1.5

    results = [bench.runner.run_round() for _ in range(4)]

    assert all(result is not None and result.is_failure for result in results)
    assert [{"peer"}, set(), set(), set()] == [result.drifted for result in results]
    outcome = "dropped: the average is 0.500 nats/byte worse than own weights on held-out text"
    assert outcome == results[0].outcome
    assert not any(bool((tensor == 0.25).all()) for tensor in bench.trainer.weights().values())
    assert all(not torch.equal(start[name], sent) for name, sent in bench.averager.sent.items())
    assert [[], [], [], ["peer"]] == bench.not_counted
    assert {"peer": 0.0} == bench.averager.trust
    [reason] = bench.record.snapshot.noted
    assert reason.line.startswith(
        "partner-refused: …peer: averages with it are 0.500 nats/byte worse"
    )


def test_the_averager_learns_what_the_round_began_with(tmp_path: Path) -> None:
    """Reducers compare what others changed since."""
    bench = Bench(tmp_path, average_at(0.25))
    start = bench.trainer.weights()
    bench.runner.run_round()
    assert all(torch.equal(start[name], tensor) for name, tensor in bench.averager.start.items())


def test_who_sends_malformed_weights_is_not_met_again(tmp_path: Path) -> None:
    """Once is enough."""
    error = RoundFailedError("lost …abc", blamed={"abc": "sent malformed weights"})
    bench = Bench(tmp_path, failing_with(error))
    bench.runner.run_round()
    assert ["partner-refused: …abc: sent malformed weights"] == [
        each.line for each in bench.record.snapshot.noted
    ]
    bench.runner.run_round()
    assert [[], ["abc"]] == bench.not_counted


def test_the_next_round_does_without_who_was_late(tmp_path: Path) -> None:
    """The user need not know."""
    bench = Bench(tmp_path, failing_with(RoundFailedError("too slow", late={"abc"})))
    for outcome in (bench.averager.outcome, average_at(0.25), average_at(0.25)):
        bench.averager.outcome = outcome
        bench.runner.run_round()
    assert [[], ["abc"], []] == bench.not_counted
    assert not bench.record.snapshot.noted


def test_an_average_with_a_replica_too_far_away_is_refused(tmp_path: Path) -> None:
    """Weights of another age are not mixed in."""
    bench = Bench(tmp_path, average_at(0.0, round_index=MAX_ROUND_LAG + 1))

    result = bench.runner.run_round()

    assert result is not None
    assert result.is_failure
    assert "rounds ahead" in result.outcome


def test_a_round_with_newer_partners_counts_from_theirs(tmp_path: Path) -> None:
    """The adopted weights have been through the newest member's rounds and one more."""
    bench = Bench(tmp_path, average_at(0.0, round_index=2))

    result = bench.runner.run_round()

    assert result is not None
    assert 3 == result.round_index


def test_own_weights_that_are_not_finite_are_not_sent(tmp_path: Path) -> None:
    """A broken replica keeps its trouble to itself."""
    bench = Bench(tmp_path, average_at(0.0))
    broken = {
        name: torch.full_like(tensor, float("inf"))
        for name, tensor in bench.trainer.weights().items()
    }
    bench.trainer.load_weights(broken)
    bench.trainer.is_broken = False
    bench.runner._train_until = lambda ends_at_s: (bench.runner._begin_average(ends_at_s), 1.0)  # type: ignore[method-assign]

    result = bench.runner.run_round()

    assert result is not None
    assert result.is_failure
    assert {} == bench.averager.sent
    assert 1 == bench.averager.num_cancelled


def test_a_silent_directory_means_a_round_alone(tmp_path: Path) -> None:
    """The swarm's trouble does not stop local steps."""
    bench = Bench(tmp_path, average_at(0.0), partners=SwarmError("no answer from the DHT"))

    result = bench.runner.run_round()

    assert result is not None
    assert ("alone", False) == (result.outcome, result.is_failure)


def test_a_pause_in_mid_round_ends_it_and_keeps_the_steps(tmp_path: Path) -> None:
    """At the next step, with the search given up; the round after it is a whole one."""
    bench = Bench(tmp_path, average_at(0.25))
    bench.pause_at_s = 1_000_003.5

    assert bench.runner.run_round() is None

    assert (7, 0, 1) == (
        bench.trainer.total_steps, bench.trainer.round_index, bench.averager.num_cancelled,
    )  # fmt: skip
    assert {} == bench.averager.sent
    bench.pause_at_s = float("inf")
    result = bench.runner.run_round()
    assert result is not None
    assert (1, 1) == (result.partners, result.round_index)


def test_a_pause_during_the_average_lets_it_end(tmp_path: Path) -> None:
    """It would spoil the round of the others."""
    bench = Bench(tmp_path, average_at(0.25))
    adopt = bench.averager.outcome

    def pause_then_adopt(weights: Mapping[str, Tensor], num_samples: int) -> GroupAverage:
        bench.pause_at_s = 0.0
        return adopt(weights, num_samples)

    bench.averager.outcome = pause_then_adopt
    result = bench.runner.run_round()
    assert result is not None
    assert (1, "averaged with 1 replica") == (result.partners, result.outcome)


def test_nobody_is_missed_where_the_others_may_be_dead(tmp_path: Path) -> None:
    """They are looked for, since they may be back; but a round without them is not a failure."""
    dead = Partners(num_possible=1, num_expected=0)
    bench = Bench(tmp_path, failing_with(GroupNotFormedError("nobody came")), partners=dead)
    result = bench.runner.run_round()
    assert result is not None
    assert 1 == len(bench.averager.begun)
    assert ("alone: nobody came", False) == (result.outcome, result.is_failure)
    assert result.code is ReasonCode.ALONE_NO_PARTNER


def test_an_average_that_fails_counts_even_where_nobody_was_expected(tmp_path: Path) -> None:
    """There was somebody after all."""
    dead = Partners(num_possible=1, num_expected=0)
    bench = Bench(tmp_path, failing_with(RoundFailedError("lost")), partners=dead)
    result = bench.runner.run_round()
    assert result is not None
    assert result.is_failure


def test_a_replica_looks_around_once_before_each_search(tmp_path: Path) -> None:
    """So that who is dead is known when the search begins."""
    bench = Bench(tmp_path, average_at(0.0))
    counted_at_s: list[float] = []
    count = bench.count

    def note_and_count(refused: Collection[str]) -> Partners:
        counted_at_s.append(bench.clock.now_s())
        return count(refused)

    bench.runner._count_partners = note_and_count
    for _ in range(3):
        bench.runner.run_round()
    assert 3 == len(bench.looked_at_s) == len(counted_at_s)
    assert all(
        looked_s < counted_s
        for looked_s, counted_s in zip(bench.looked_at_s, counted_at_s, strict=True)
    )


def test_a_stop_in_mid_round_ends_it_and_cancels_the_search(tmp_path: Path) -> None:
    """No result, no average, and the others are not kept waiting."""
    bench = Bench(tmp_path, average_at(0.0))
    count = bench.count

    def count_and_stop(refused: Collection[str]) -> Partners:
        bench.stop.event.set()
        return count(refused)

    bench.runner._count_partners = count_and_stop

    assert bench.runner.run_round() is None
    assert {} == bench.averager.sent
    assert bench.averager.num_cancelled >= 1


def test_steps_that_are_never_finite_end_in_an_error(tmp_path: Path) -> None:
    """Training that diverged is reported, not repeated for ever."""
    bench = Bench(tmp_path, average_at(0.0))
    bench.trainer.is_broken = True
    bench.manifest.rounds.__dict__["round_s"] = 40.0

    with pytest.raises(TrainingError, match="in a row were not finite"):
        bench.runner.run_round()


def test_a_round_tells_when_its_last_step_ended_and_how_long_a_step_takes(tmp_path: Path) -> None:
    """From that a reader sees that training hangs."""
    bench = Bench(tmp_path, average_at(0.25))

    bench.runner.run_round()

    snapshot = bench.record.snapshot
    assert 1_000_004.0 == snapshot.last_step_at_s
    assert snapshot.usual_step_s == pytest.approx(STEP_S)


@pytest.mark.parametrize(
    ("outcome", "partners", "expected"),
    [
        (average_at(0.25), 1, None),
        (average_at(0.25), 0, ReasonCode.ALONE_NO_PARTNER),
        (failing_with(GroupNotFormedError("nobody came")), 1, ReasonCode.PARTNER_LATE),
        (failing_with(RoundTimeoutError("took long")), 1, ReasonCode.AVERAGE_LATE),
        (failing_with(RoundFailedError("lost")), 1, ReasonCode.AVERAGE_BROKEN),
        (average_at(0.0, round_index=99), 1, ReasonCode.AVERAGE_REFUSED),
    ],
)
def test_a_round_without_an_average_has_a_code(
    tmp_path: Path, outcome: Outcome, partners: int, expected: ReasonCode | None
) -> None:
    """So that whoever reads it need not know the words."""
    result = Bench(tmp_path, outcome, partners).runner.run_round()
    assert result is not None
    assert expected == result.code
