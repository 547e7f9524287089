"""One round after another: local steps, an average with the other replicas, adopt or keep.

Whether it is adopted, and whom to meet again, is decided by the gate. Nothing here stops the node for another peer's fault: a round that fails leaves the weights as they
were, and says why.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from bt_p2p.averaging.admission import is_finite, round_after
from bt_p2p.averaging.averager import GroupAverage, GroupAverager, PartnerReport, PendingAverage
from bt_p2p.averaging.gate import Gate
from bt_p2p.averaging.outer import OuterMomentum
from bt_p2p.averaging.schedule import (
    average_timeout_s,
    look_starts_s,
    matchmaking_starts_s,
    next_round_end_s,
)
from bt_p2p.clock import Clock
from bt_p2p.errors import (
    AverageRefusedError,
    AveragingError,
    GroupNotFormedError,
    OwnWeightsError,
    RoundFailedError,
    SwarmError,
    TrainingError,
)
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.training.trainer import BlockTrainer
from node.partners import NOBODY, Partners
from node.reasons.code import ReasonCode
from node.reasons.outcome import code_of
from node.record import NodeRecord
from node.stop import StopRequest

logger = logging.getLogger(__name__)

_MAX_BAD_STEPS_IN_A_ROW = 20
_STEP_MEMORY = 0.9
"""Of the usual time of a step: it changes with the last ten or so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundResult:
    """How a round ended."""

    round_index: int
    """Rounds the weights have now been through."""
    loss: float
    """Mean training cross entropy of the round, nats per byte; NaN without a good step."""
    num_steps: int
    weights: Mapping[str, Tensor]
    """What is agreed on, to be served: the adopted average, or this replica's own."""
    partners: int
    """Other replicas in the adopted average; 0 when there is none."""
    outcome: str
    """In plain words."""
    is_failure: bool
    """A group was expected, but its average was not adopted."""
    code: ReasonCode | None = None
    """Why there was no average; None if there was one."""
    drifted: frozenset[str] = frozenset()
    """Partners of an average that was not adopted, who had trained apart from this replica."""


class RoundRunner:
    """Runs rounds in the calling thread until a stop is requested."""

    def __init__(
        self,
        manifest: RunManifest,
        trainer: BlockTrainer,
        averager: GroupAverager,
        gate: Gate,
        *,
        look: Callable[[], None],
        count_partners: Callable[[Collection[str]], Partners],
        record: NodeRecord,
        stop: StopRequest,
        clock: Clock,
        is_paused: Callable[[], bool],
    ) -> None:
        """Wire the parts together.

        Args:
            manifest: the run.
            trainer: owns the block; its `round_index` is where to go on.
            averager: finds the other replicas.
            gate: judges averages, and remembers whom not to meet.
            look: called a moment before each search; it must not wait for the network.
            count_partners: how many other replicas of the block are live now, beside the peers
                given; may raise SwarmError.
            record: kept up to date while steps go on.
            stop: looked at after each step.
            clock: DHT time.
            is_paused: looked at after each step; a round is given up when the node may not train.
        """
        self._is_paused = is_paused
        self._manifest = manifest
        self._trainer = trainer
        self._averager = averager
        self._gate = gate
        self._look = look
        self._count_partners = count_partners
        self._record = record
        self._stop = stop
        self._clock = clock
        self._pending: PendingAverage | None = None
        self._start: Mapping[str, Tensor] = {}
        self._drifted: frozenset[str] = frozenset()
        self._outer = OuterMomentum(manifest.rounds.outer_momentum)
        stop.on_request(self._cancel_pending)

    def run_round(self) -> RoundResult | None:
        """One round; None when a stop or a pause came before its end (nothing is lost by it).

        An average that is under way is not broken off by a pause: it would spoil it for the others.

        Raises:
            SwarmError: the averager's process is gone.
            TrainingError: the local loss is not finite, step after step.
        """
        round_s = self._manifest.rounds.round_s
        ends_at_s = next_round_end_s(self._clock.now_s(), round_s)
        self._trainer.start_round(self._trainer.round_index)
        self._start = self._trainer.weights()
        self._outer.begin(self._start)
        self._record.update(
            state="training",
            round_index=self._trainer.round_index,
            round_ends_at_s=ends_at_s,
            round_s=round_s,
            last_step_at_s=self._clock.now_s(),
        )
        partners, loss = self._train_until(ends_at_s)
        if self._is_broken_off:
            self._cancel_pending()
            self._pending = None
            return None
        return self._finish(partners, loss)

    def _train_until(self, ends_at_s: float) -> tuple[Partners, float]:
        """Local steps, and on the way the search for the group; returns partners and mean loss."""
        search_at_s = matchmaking_starts_s(ends_at_s, self._manifest.rounds.round_s)
        look_at_s = look_starts_s(ends_at_s, self._manifest.rounds.round_s)
        started_s = self._clock.monotonic_s()
        total_nats, total_bytes, bad_in_a_row = 0.0, 0, 0
        partners, step_s = NOBODY, 0.0
        has_looked = is_searching = False
        before = self._record.snapshot
        while self._clock.now_s() < ends_at_s and not self._is_broken_off:
            if not has_looked and self._clock.now_s() >= look_at_s:
                has_looked = True
                self._look()
            # a step that would run past the moment is not started before the search
            if not is_searching and self._clock.now_s() + step_s >= search_at_s:
                is_searching = True
                partners = self._begin_average(ends_at_s)
            step_started_s = self._clock.monotonic_s()
            result = self._trainer.train_step()
            step_s = self._clock.monotonic_s() - step_started_s
            self._tell_step(step_s)
            if result.is_skipped:
                bad_in_a_row += 1
                if bad_in_a_row >= _MAX_BAD_STEPS_IN_A_ROW:
                    self._cancel_pending()
                    raise TrainingError(f"{bad_in_a_row} local steps in a row were not finite")
                continue
            bad_in_a_row = 0
            if self._trainer.num_parts > 1:
                self._record.note(
                    ReasonCode.OUT_OF_MEMORY_BATCH_HALVED,
                    f"memory is short, so steps are done in {self._trainer.num_parts} parts",
                )
            total_nats += result.cross_entropy * result.num_bytes
            total_bytes += result.num_bytes
            elapsed_s = max(1e-9, self._clock.monotonic_s() - started_s)
            self._record.update(
                steps=self._trainer.total_steps,
                loss=total_nats / total_bytes,
                bytes_trained=before.bytes_trained + total_bytes,
                bytes_per_s=total_bytes / elapsed_s,
            )
        return partners, total_nats / total_bytes if total_bytes else math.nan

    @property
    def _is_broken_off(self) -> bool:
        return self._stop.is_requested or self._is_paused()

    def _tell_step(self, step_s: float) -> None:
        """A step has ended, even if nothing came of it."""
        usual_s = self._record.snapshot.usual_step_s
        if usual_s is None:
            usual_s = step_s
        self._record.update(
            last_step_at_s=self._clock.now_s(),
            usual_step_s=_STEP_MEMORY * usual_s + (1 - _STEP_MEMORY) * step_s,
        )

    def _begin_average(self, ends_at_s: float) -> Partners:
        """Start looking for the group unless this replica is alone; how many others there are."""
        try:
            partners = self._count_partners(self._gate.refused.keys() | self._gate.left_out)
        except SwarmError as exc:
            logger.warning("round %d goes on alone: %s", self._trainer.round_index, exc)
            return NOBODY
        if partners.num_possible:
            report = PartnerReport(round_index=self._trainer.round_index)
            self._pending = self._averager.begin(
                report, ends_at_s=ends_at_s, trust=self._gate.trust
            )
        return partners

    def _finish(self, sought: Partners, loss: float) -> RoundResult:
        """Average and adopt, or keep one's own weights; either way the round counts."""
        round_index = self._trainer.round_index
        partners, outcome, is_failure = 0, "alone", False
        code: ReasonCode | None = ReasonCode.ALONE_NO_PARTNER
        self._drifted = frozenset()
        is_alone = self._pending is None
        pending, agreed = self._pending, self._trainer.weights()
        if pending is not None:
            self._record.update(state="averaging")
            try:
                average = self._average(pending, agreed, sought.num_possible)
                partners, agreed, code = len(average.partners), average.weights, None
                round_index = round_after(average, round_index=round_index)
                self._trainer.load_weights(self._outer.step(agreed))
                outcome = f"averaged with {partners} replica{'s' if partners != 1 else ''}"
            except GroupNotFormedError as exc:
                outcome, is_alone = f"alone: {exc}", True
                is_failure = sought.num_expected > 0
                if is_failure:
                    code = code_of(exc)
                round_index += 1
            except AveragingError as exc:
                outcome, is_failure, code = f"dropped: {exc}", True, code_of(exc)
                round_index += 1
            finally:
                self._pending = None
        else:
            round_index += 1
        if not partners:
            self._outer.reset()
        self._gate.end_round(is_alone=is_alone)
        self._warn_of_refused()
        self._trainer.round_index = round_index
        return RoundResult(
            round_index=round_index,
            loss=loss,
            num_steps=self._trainer.step_in_round,
            weights=agreed,
            partners=partners,
            outcome=outcome,
            is_failure=is_failure,
            code=code,
            drifted=self._drifted,
        )

    def _average(
        self, pending: PendingAverage, own: dict[str, Tensor], num_partners: int
    ) -> GroupAverage:
        if not is_finite(own):
            pending.cancel()
            raise OwnWeightsError("own weights are not finite, so they were not sent")
        size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in own.values())
        try:
            average = pending.finish(
                own,
                start=self._start,
                num_samples=self._trainer.samples_in_round,
                timeout_s=average_timeout_s(
                    size_bytes, num_partners + 1, self._manifest.rounds.round_s
                ),
            )
        except RoundFailedError as exc:
            self._gate.blame(exc.blamed)
            self._gate.leave_out(exc.late)
            raise
        drifted = self._gate.drifted(average.partners)
        reason = self._gate.reason_to_refuse(
            average, own, self._start, round_index=self._trainer.round_index
        )
        if reason:
            self._drifted = drifted
            raise AverageRefusedError(reason)
        return average

    def _warn_of_refused(self) -> None:
        """Say whom this replica does not average with, and why."""
        refused = self._gate.refused.items()
        text = "; ".join(f"{short_peer_id(peer)}: {why}" for peer, why in refused)
        self._record.show(ReasonCode.PARTNER_REFUSED, text)

    def _cancel_pending(self) -> None:
        pending = self._pending
        if pending is not None:
            pending.cancel()
