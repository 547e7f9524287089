"""This node's replica of its block: it trains, averages, serves what was agreed on, and is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from torch import Tensor

from bt_p2p.averaging.averager import GroupAverager
from bt_p2p.averaging.gate import Gate
from bt_p2p.averaging.schedule import payload_size_bytes
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.errors import SwarmError, TrainingError
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.limits import LOOK_BEFORE_SEARCH_S
from bt_p2p.protocol.overview import SwarmOverview
from bt_p2p.swarm.block_rpc import HivemindBlockServer
from bt_p2p.training.trainer import BlockTrainer
from node.catch_up import CatchUp
from node.download_pace import must_sync
from node.joined import Joined
from node.keeper import LeaseKeeper
from node.partners import NOBODY, Partners, count_partners
from node.reasons.code import ReasonCode
from node.resources import checkpoint_size_bytes
from node.rounds import RoundResult, RoundRunner
from node.saver import CheckpointSaver
from node.snapshot import NodeSnapshot
from node.stop import StopRequest
from node.tui.progress import JoinReporter

logger = logging.getLogger(__name__)

_MAX_RESTARTS_OF_TRAINING = 3
_LOOK_S = 0.25
"""The end of a pause is noticed within this time."""


class Replica:
    """Trains one block round after round, in the calling thread.

    Attributes:
        round_served: rounds behind the weights that others get from us.
    """

    def __init__(
        self,
        joined: Joined,
        block: int,
        trainer: BlockTrainer,
        gate: Gate,
        service: LocalBlockService,
        keeper: LeaseKeeper,
        reporter: JoinReporter,
        stop: StopRequest,
    ) -> None:
        """Take over what was kept of an earlier life of this replica, if anything.

        Args:
            joined: the node.
            block: which block.
            trainer: owns its weights.
            gate: judges averages.
            service: serves them.
            keeper: is told of each new round.
            reporter: tells the user.
            stop: looked at wherever something is waited for.
        """
        self._manifest = joined.manifest
        self._peer = joined.peer
        self._record = joined.record
        self._clock = joined.clock
        self._max_rounds = joined.max_rounds
        self._manners = joined.manners
        self._kept = joined.supervisor.kept
        self._rounds_before = int(self._kept.get("rounds", "0"))
        self._block = block
        self._trainer = trainer
        self._gate = gate
        self._service = service
        self._keeper = keeper
        self._reporter = reporter
        self._stop = stop
        sizes = block_sizes(joined.manifest.model, joined.manifest.objective, batch_size=1)
        self._saver = CheckpointSaver(
            joined.state_dir.checkpoint_path(joined.manifest.run_id, block),
            joined.record,
            joined.clock,
            state_path=joined.state_dir.path,
            checkpoint_bytes=checkpoint_size_bytes(sizes),
        )
        self._payload_sent_bytes = 0
        self._received_bytes = 0
        self._receipts = joined.receipts
        self._catch_up = CatchUp(joined, block, keeper, reporter, stop)
        self._is_newcomer = True
        self._is_behind = False
        self._resume()

    def _resume(self) -> None:
        checkpoint = self._saver.load()
        if checkpoint is not None:
            self._trainer.restore(checkpoint)
            self._is_newcomer = False
            self._reporter.line(
                f"resumed from round {self._trainer.round_index} in {checkpoint.path}"
            )
        self._service.adopt(self._trainer.weights(), self._trainer.round_index)
        self.round_served = self._trainer.round_index

    def catch_up(self) -> None:
        """Take the current weights from other replicas, if any is ahead.

        Raises:
            SwarmError: there are replicas ahead, but none gives its weights, try after try.
        """
        synced = self._catch_up.fetch(self._trainer.round_index)
        if synced is None:
            return
        self._trainer.load_weights(synced.weights)
        self._trainer.round_index = synced.round_index
        self._is_newcomer = False
        self._adopt(synced.weights, synced.round_index)

    def train(
        self,
        averager: GroupAverager,
        server: HivemindBlockServer,
        *,
        between_rounds: Callable[[], None],
        is_clock_right: Callable[[], bool],
        copied_bytes: Callable[[], int],
    ) -> None:
        """Rounds until a stop is requested, or as many as the user wants; saves at the end.

        Where a process of this node has ended, a rebuild is asked for.

        Args:
            averager: finds the other replicas.
            server: of the service; tells how much it has sent.
            between_rounds: called before each round.
            is_clock_right: a node whose clock is wrong trains alone.
            copied_bytes: what copies of other blocks have taken from the network so far.

        Raises:
            TrainingError: local steps are not finite, however often it goes back.
        """
        # with a wrong clock it would come at another moment than the others, and spoil their round
        runner = RoundRunner(
            self._manifest,
            self._trainer,
            averager,
            self._gate,
            look=self._keeper.poke,
            count_partners=lambda refused: self._partners(refused, is_clock_right()),
            record=self._record,
            stop=self._stop,
            clock=self._clock,
            is_paused=lambda: self._manners.is_paused,
        )
        if "trained" not in self._kept:
            self._kept["trained"] = "yes"
            self._receipts.begin_training()
        try:
            self._run_rounds(runner, server, between_rounds, copied_bytes)
        except SwarmError as exc:
            self._stop.ask_to_rebuild(str(exc))
        finally:
            is_back_soon = bool(self._stop.rebuild_reason)
            self._record.update(state="rebuilding" if is_back_soon else "leaving")
            is_saved = self._saver.save(self._trainer)
            if not is_back_soon:
                self._reporter.line(f"leaving: state {'saved' if is_saved else 'NOT saved'}")

    def _run_rounds(
        self,
        runner: RoundRunner,
        server: HivemindBlockServer,
        between_rounds: Callable[[], None],
        copied_bytes: Callable[[], int],
    ) -> None:
        num_rounds, num_restarts = 0, 0
        self._saver.look_at_disk()
        while not self._stop.is_requested and num_rounds != self._max_rounds:
            if self._manners.is_paused:
                if self._manners.is_finishing:
                    break
                self._sit_out()
                continue
            between_rounds()
            started_s, before = self._clock.monotonic_s(), self._record.snapshot
            try:
                result = runner.run_round()
            except TrainingError as exc:
                num_restarts += 1
                if num_restarts > _MAX_RESTARTS_OF_TRAINING:
                    raise
                self._record.note(
                    ReasonCode.TRAINING_DIVERGED,
                    f"{exc}: going back to the weights of the last round",
                )
                self._reporter.line(f"{exc}: going back to the weights of the last round")
                self._trainer.load_weights(self._service.served_weights())
                continue
            if result is None:
                continue
            num_rounds += 1
            self._kept["rounds"] = str(self._rounds_before + num_rounds)
            self._adopt(result.weights, self._trainer.round_index)
            self._tell(result, server)
            self._give_receipt(before, copied_bytes(), took_s=self._clock.monotonic_s() - started_s)
            self._saver.save_if_due(self._trainer)
            if self._manners.is_finishing:
                break
            if result.drifted:
                self._reconcile(result.drifted)
            self._catch_up_if_behind()

    def _sit_out(self) -> None:
        """Neither train nor average while the user's rules say so; the block is served on.

        Others average meanwhile, so it takes their weights before it averages again.
        """
        pause = self._manners.pause
        self._reporter.line(f"paused: {pause.words if pause else 'not any more'}")
        self._record.update(state="paused", round_ends_at_s=None, bytes_per_s=0.0)
        self._saver.save(self._trainer)
        while self._manners.is_paused and not self._manners.is_finishing:
            if self._stop.event.wait(_LOOK_S):
                return
            self._record.update(state="paused")
        if self._manners.is_finishing:
            return
        self._reporter.line("goes on training")
        self._is_behind = True
        self._catch_up_if_behind()

    def _reconcile(self, peer_ids: Collection[str]) -> None:
        """Replicas that trained apart cannot average: one goes on from the other's weights.

        Each judges by its own held-out text, so that nobody is talked into worse weights.
        """
        self._reporter.line("trained apart from another replica: one of us follows the other")
        leader = min(peer_ids)
        synced = self._catch_up.fetch_from([leader])
        if synced is None:
            return
        own = self._service.served_weights()
        if not self._gate.should_follow(synced.weights, own, peer_id=leader):
            self._reporter.line(f"kept own weights, which {short_peer_id(leader)} may follow")
            return
        self._trainer.load_weights(synced.weights)
        self._trainer.round_index = max(self._trainer.round_index, synced.round_index)
        self._adopt(synced.weights, self._trainer.round_index)

    def _catch_up_if_behind(self) -> None:
        newest = self._newest_round(self._keeper.latest)
        if not (self._is_behind or self._must_sync(newest)):
            return
        self._is_behind = False
        try:
            self.catch_up()
        except SwarmError as exc:
            self._is_behind = True  # and it does not average before it has caught up
            self._record.note(ReasonCode.WEIGHTS_NOT_GIVEN, str(exc))

    def _must_sync(self, newest: int | None) -> bool:
        return must_sync(self._trainer.round_index, newest, is_newcomer=self._is_newcomer)

    def _newest_round(self, view: SwarmOverview | None) -> int | None:
        return None if view is None else view.blocks[self._block].round_index

    def _adopt(self, weights: Mapping[str, Tensor], round_index: int) -> None:
        """Serve what was just agreed on, and say so."""
        self._service.adopt(weights, round_index)
        self.round_served = round_index
        self._record.update(round_index=round_index)
        self._keeper.poke()

    def _tell(self, result: RoundResult, server: HivemindBlockServer) -> None:
        before = self._record.snapshot
        now_s, first_average_s = self._clock.now_s(), before.first_average_s
        if result.partners:
            self._is_newcomer = False
            if first_average_s is None:
                first_average_s = now_s - before.started_at_s
            size_bytes = block_sizes(
                self._manifest.model, self._manifest.objective, batch_size=1
            ).weights_size_bytes
            if self._manifest.rounds.compression == "float16":
                size_bytes //= 2
            self._payload_sent_bytes += payload_size_bytes(size_bytes, result.partners + 1)
        self._record.add_loss(result.loss)
        self._record.clear(ReasonCode.TRAINING_DIVERGED)
        self._record.update(
            rounds_averaged=before.rounds_averaged + (result.partners > 0),
            rounds_alone=before.rounds_alone + (not result.partners and not result.is_failure),
            rounds_failed=before.rounds_failed + result.is_failure,
            last_partners=result.partners,
            last_outcome=result.outcome,
            last_code=result.code,
            rounds_since_average=0 if result.partners else before.rounds_since_average + 1,
            last_average_at_s=now_s if result.partners else before.last_average_at_s,
            first_average_s=first_average_s,
            bytes_sent=self._payload_sent_bytes + server.bytes_sent,
            requests_served=self._service.num_requests,
        )

    def _give_receipt(self, before: NodeSnapshot, copied_bytes: int, *, took_s: float) -> None:
        """Add the round that has just been told to what was given to this run so far."""
        after = self._record.snapshot
        received_bytes = (
            self._payload_sent_bytes  # in an average, as much comes as goes
            + self._catch_up.bytes_received
            + copied_bytes
        )
        run_id, received_before = self._manifest.run_id, self._received_bytes
        self._received_bytes = received_bytes
        receipt = self._receipts.add(
            run_id,
            at_s=self._clock.now_s(),
            is_averaged=after.rounds_averaged > before.rounds_averaged,
            samples=self._trainer.samples_in_round,
            bytes_trained=after.bytes_trained - before.bytes_trained,
            bytes_sent=after.bytes_sent - before.bytes_sent,
            bytes_received=received_bytes - received_before,
            trained_s=took_s,
        )
        if after.first_average_s is not None and before.first_average_s is None:
            receipt = self._receipts.first_contribution(run_id, after.first_average_s)
        self._record.update(contribution=receipt)

    def _partners(self, refused: Collection[str], is_clock_right: bool) -> Partners:
        """Other live replicas of our block that are close enough to average with."""
        if self._is_behind or not is_clock_right:
            return NOBODY
        view = self._keeper.recent_view(LOOK_BEFORE_SEARCH_S)
        if self._is_newcomer and self._must_sync(self._newest_round(view)):
            self._is_behind = True  # others came while it trained; after this round it follows them
            return NOBODY
        return count_partners(
            view.blocks[self._block].holders,
            apart_from={self._peer.peer_id, *refused},
            round_index=self._trainer.round_index,
            read_at_s=view.taken_at_s,
        )
