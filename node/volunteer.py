"""A joined node: the parts it is made of, and the order in which they start and stop."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import logging
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from bt_p2p.averaging.schedule import payload_size_bytes
from bt_p2p.chain.block_rpc import BlockService
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.chain.span import SpanService
from bt_p2p.clock import Clock
from bt_p2p.corpus.corpus import Corpus
from bt_p2p.errors import CheckpointError, SwarmError, TrainingError
from bt_p2p.model.block import weight_specs
from bt_p2p.model.checkpoint import load_checkpoint, save_checkpoint
from bt_p2p.model.device import DeviceChoice, pick_device
from bt_p2p.model.sizes import block_sizes
from bt_p2p.model.upstream import UpstreamStack
from bt_p2p.protocol.assignment import check_block, choose_block
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.lease import BlockCopy, Lease, LeaseState
from bt_p2p.protocol.limits import DHT_TIMEOUT_S, MAX_ROUND_LAG, SETTLE_S, STOP_TIMEOUT_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from bt_p2p.swarm.averager import HivemindAverager
from bt_p2p.swarm.block_rpc import HivemindBlockClient, HivemindBlockServer
from bt_p2p.swarm.process import SwarmPeer
from bt_p2p.training.data import BatchSource
from bt_p2p.training.trainer import BlockTrainer
from node.copies import Adopt, BlockCopies
from node.keeper import LeaseKeeper
from node.manifests import join_command
from node.record import NodeRecord
from node.rounds import RoundResult, RoundRunner
from node.state_dir import StateDir
from node.stop import StopRequest
from node.sync import donors, fetch_weights
from node.tui.progress import JoinReporter

logger = logging.getLogger(__name__)

_SAVE_PERIOD_S = 60.0
_MAX_SYNC_ATTEMPTS = 3
_SYNC_RETRY_S = 3.0
_LOOK_S = 0.25
"""A stop is noticed within this time while something is waited for."""
_MAX_RESTARTS_OF_TRAINING = 3
_COPIES = {"upstream": "training on", "span": "serving"}
"""What copies of others' blocks are for, and how that is told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Joined:
    """A peer that has entered a swarm, and what it brings."""

    manifest: RunManifest
    corpus: Corpus
    peer: SwarmPeer
    directory: Directory
    state_dir: StateDir
    record: NodeRecord
    clock: Clock
    block: int | None
    """The block the user chose; None leaves it to the swarm."""
    span: range | None
    """Blocks to serve; the one to train is among them. None serves that one alone."""
    device: str
    max_rounds: int | None
    is_first: bool
    """Nobody else was there to enter through."""


class Volunteer:
    """The parts of a joined node, and the order in which they start and stop."""

    def __init__(self, joined: Joined, reporter: JoinReporter, stop: StopRequest) -> None:
        self._manifest = joined.manifest
        self._corpus = joined.corpus
        self._peer = joined.peer
        self._state_dir = joined.state_dir
        self._device = joined.device
        self._max_rounds = joined.max_rounds
        self._record = joined.record
        self._reporter = reporter
        self._stop = stop
        self._clock = joined.clock
        self._boot_id = secrets.token_hex(4)
        self._addresses = joined.peer.addresses()[:2]
        self._block = joined.block
        self._span = joined.span
        self._copies: dict[str, BlockCopies] = {}
        self._state: LeaseState = "joining"
        self._round_served = 0
        self._view: SwarmOverview | None = None
        self._payload_sent_bytes = 0
        self._is_first = joined.is_first
        self._keeper = LeaseKeeper(
            joined.directory, joined.manifest, self._describe, joined.clock, self._see
        )

    def run(self) -> None:
        """Join, train, leave."""
        self._say_how_to_join()
        with contextlib.ExitStack() as stack:
            block = self._settle()
            # forked before anything else has threads
            shapes = {name: shape for name, (shape, _) in weight_specs(self._manifest).items()}
            averager = HivemindAverager(self._peer.dht, self._manifest, block, shapes)
            stack.callback(averager.stop)
            device = pick_device(self._device)
            upstream = self._make_upstream(block, device, stack)
            trainer = self._make_trainer(block, device, upstream)
            service = LocalBlockService(self._manifest, block)
            service.adopt(trainer.weights(), trainer.round_index)
            server = HivemindBlockServer(self._peer.p2p, self._make_span(service, stack))
            self._peer.loop.run(server.start(), timeout_s=DHT_TIMEOUT_S)
            self._catch_up(trainer, service)
            stack.callback(self._leave)
            self._state = "training"
            self._keeper.start()
            self._reporter.watch(lambda: self._record.snapshot)
            runner = RoundRunner(
                self._manifest,
                trainer,
                averager,
                count_partners=functools.partial(self._count_partners, trainer),
                record=self._record,
                stop=self._stop,
                clock=self._clock,
            )
            try:
                self._train(runner, trainer, service, server)
            finally:
                self._record.update(state="leaving")
                self._save(trainer)

    # --- joining -------------------------------------------------------------------------------

    def _settle(self) -> int:
        """Announce ourselves, wait for others who start now, and choose a block."""
        num_blocks = self._manifest.model.num_blocks
        choice = self._span or range(num_blocks)
        self._record.update(state="joining")
        self._keeper.renew()
        if self._block is None:
            held = self._state_dir.held_blocks(self._manifest.run_id)
            if held and held[0] in choice:
                self._block = held[0]
                self._reporter.line(f"block {self._block}: this node trained it before")
            else:
                self._stop.event.wait(SETTLE_S)
                overview = self._keeper.view()
                self._block = choose_block(overview, self._peer.peer_id, span=choice)
                holders = [len(block.holders) for block in overview.blocks]
                self._reporter.line(
                    f"block {self._block}: the thinnest (holders by block: {holders}, "
                    f"{len(overview.joining)} joining)"
                )
        check_block(self._block, num_blocks)
        self._record.update(block=self._block)
        self._keeper.renew()
        return self._block

    def _make_upstream(
        self, block: int, device: DeviceChoice, stack: contextlib.ExitStack
    ) -> UpstreamStack:
        """What `cascade` trains on, kept fresh; other objectives copy nothing."""
        num_copies = block if self._manifest.objective.name == "cascade" else 0
        upstream = UpstreamStack(self._manifest, num_copies, device.device)
        self._copy(
            "upstream",
            range(num_copies),
            lambda index, weights, _: upstream.adopt(index, weights),
            self._manifest.objective.upstream_refresh_rounds,
            stack,
        )
        return upstream

    def _make_span(self, service: LocalBlockService, stack: contextlib.ExitStack) -> BlockService:
        """Our own block, and copies of the others of the span once they are there."""
        assert self._block is not None
        services = {self._block: service}

        def adopt(index: int, weights: Mapping[str, Tensor], round_index: int) -> None:
            copy = services.get(index) or LocalBlockService(self._manifest, index)
            copy.adopt(weights, round_index)
            services[index] = copy

        others = [index for index in self._span or () if index != self._block]
        self._copy("span", others, adopt, MAX_ROUND_LAG, stack)
        return SpanService(services)

    def _copy(
        self,
        purpose: str,
        blocks: Collection[int],
        adopt: Adopt,
        refresh_rounds: int,
        stack: contextlib.ExitStack,
    ) -> None:
        copies = BlockCopies(
            self._manifest,
            blocks,
            adopt,
            HivemindBlockClient(self._peer.p2p),
            self._peer.loop.start,
            peer_id=self._peer.peer_id,
            refresh_rounds=refresh_rounds,
        )
        stack.callback(copies.stop)
        self._copies[purpose] = copies

    def _make_trainer(
        self, block: int, device: DeviceChoice, upstream: UpstreamStack
    ) -> BlockTrainer:
        self._reporter.line(f"training on {device.reason}")
        self._record.update(device=device.reason)
        spec = self._manifest
        source = BatchSource(self._corpus.train, spec.model.context, spec.optimizer.batch_size)
        trainer = BlockTrainer(spec, block, device, source, self._peer.peer_id, upstream=upstream)
        checkpoint = load_checkpoint(self._checkpoint_path(block))
        if checkpoint is not None:
            trainer.restore(checkpoint)
            self._reporter.line(f"resumed from round {trainer.round_index} in {checkpoint.path}")
        return trainer

    def _catch_up(self, trainer: BlockTrainer, service: LocalBlockService) -> None:
        """Take the current weights from a replica, as long as one is ahead.

        Raises:
            SwarmError: there are replicas ahead, but none gives its weights, try after try.
        """
        for attempt in range(_MAX_SYNC_ATTEMPTS):
            try:
                self._fetch_if_behind(trainer, service)
            except SwarmError as exc:
                if attempt == _MAX_SYNC_ATTEMPTS - 1:
                    raise
                self._reporter.line(f"{exc}; trying again")
                self._stop.event.wait(_SYNC_RETRY_S)
            else:
                return

    def _fetch_if_behind(self, trainer: BlockTrainer, service: LocalBlockService) -> None:
        assert self._block is not None
        ahead = donors(
            self._keeper.view(),
            block=self._block,
            peer_id=self._peer.peer_id,
            round_index=trainer.round_index,
        )
        if not ahead:
            return
        self._record.update(state="syncing")
        download = self._peer.loop.start(
            fetch_weights(
                HivemindBlockClient(self._peer.p2p),
                ahead,
                expected=weight_specs(self._manifest),
                min_round_index=trainer.round_index + 1,
            )
        )
        while not concurrent.futures.wait([download], timeout=_LOOK_S).done:
            if self._stop.is_requested:
                download.cancel()
                return
        synced = download.result()
        trainer.load_weights(synced.weights)
        trainer.round_index = synced.round_index
        self._adopt(synced.weights, synced.round_index, service)
        self._reporter.line(
            f"took round {synced.round_index} of block {self._block} from "
            f"{short_peer_id(synced.peer_id)}"
        )

    # --- training ------------------------------------------------------------------------------

    def _train(
        self,
        runner: RoundRunner,
        trainer: BlockTrainer,
        service: LocalBlockService,
        server: HivemindBlockServer,
    ) -> None:
        num_rounds, num_restarts = 0, 0
        saved_at_s = self._clock.monotonic_s()
        while not self._stop.is_requested:
            self._check_children()
            self._refresh_copies()
            try:
                result = runner.run_round()
            except TrainingError as exc:
                num_restarts += 1
                if num_restarts > _MAX_RESTARTS_OF_TRAINING:
                    raise
                self._reporter.line(f"{exc}: going back to the weights of the last round")
                trainer.load_weights(service.served_weights())
                continue
            if result is None:
                return
            num_rounds += 1
            self._adopt(result.weights, trainer.round_index, service)
            self._tell(result, service, server)
            if self._clock.monotonic_s() - saved_at_s >= _SAVE_PERIOD_S:
                self._save_if_possible(trainer)
                saved_at_s = self._clock.monotonic_s()
            if num_rounds == self._max_rounds:
                return
            self._catch_up_if_behind(trainer, service)

    def _refresh_copies(self) -> None:
        if self._view is None:
            return
        for purpose, copies in self._copies.items():
            for index in copies.between_rounds(self._view):
                self._reporter.line(f"{_COPIES[purpose]} a copy of block {index} from now on")
            if copies.problem:
                self._record.warn(purpose, copies.problem)
            else:
                self._record.clear(purpose)

    def _catch_up_if_behind(self, trainer: BlockTrainer, service: LocalBlockService) -> None:
        view = self._view
        assert self._block is not None
        newest = view.blocks[self._block].round_index if view else None
        if newest is None or newest - trainer.round_index <= MAX_ROUND_LAG:
            return
        try:
            self._catch_up(trainer, service)
            self._record.clear("behind")
        except SwarmError as exc:
            self._record.warn("behind", f"{newest - trainer.round_index} rounds; {exc}")

    def _adopt(
        self, weights: Mapping[str, Tensor], round_index: int, service: LocalBlockService
    ) -> None:
        """Serve what was just agreed on, and say so."""
        service.adopt(weights, round_index)
        self._round_served = round_index
        self._record.update(round_index=round_index)
        self._keeper.poke()

    def _tell(
        self, result: RoundResult, service: LocalBlockService, server: HivemindBlockServer
    ) -> None:
        before = self._record.snapshot
        if result.partners:
            size_bytes = block_sizes(
                self._manifest.model, self._manifest.objective, batch_size=1
            ).weights_size_bytes
            if self._manifest.rounds.compression == "float16":
                size_bytes //= 2
            self._payload_sent_bytes += payload_size_bytes(size_bytes, result.partners + 1)
        self._record.add_loss(result.loss)
        self._record.update(
            rounds_averaged=before.rounds_averaged + (result.partners > 0),
            rounds_alone=before.rounds_alone + (not result.partners and not result.is_failure),
            rounds_failed=before.rounds_failed + result.is_failure,
            last_partners=result.partners,
            last_outcome=result.outcome,
            last_average_at_s=self._clock.now_s() if result.partners else before.last_average_at_s,
            bytes_sent=self._payload_sent_bytes + server.bytes_sent,
            requests_served=service.num_requests,
        )

    def _count_partners(self, trainer: BlockTrainer) -> int:
        """Other live replicas of our block that are close enough to average with."""
        assert self._block is not None
        return sum(
            lease.peer_id != self._peer.peer_id
            and lease.state == "training"
            and abs(lease.round_index - trainer.round_index) <= MAX_ROUND_LAG
            for lease in self._keeper.view().blocks[self._block].holders
        )

    def _check_children(self) -> None:
        if not self._peer.dht.is_alive():
            raise SwarmError("the DHT process of this node has ended; start the node again")
        if self._keeper.problem:
            self._record.warn("swarm", self._keeper.problem)
        else:
            self._record.clear("swarm")

    # --- leaving, and what others see ----------------------------------------------------------

    def _save(self, trainer: BlockTrainer) -> None:
        tensors, facts = trainer.state()
        assert self._block is not None
        save_checkpoint(self._checkpoint_path(self._block), tensors, facts)

    def _save_if_possible(self, trainer: BlockTrainer) -> None:
        """A full disk is shown and does not end the node: the weights live on in the swarm."""
        try:
            self._save(trainer)
            self._record.clear("disk")
        except CheckpointError as exc:
            logger.warning("%s", exc)
            self._record.warn("disk", str(exc))

    def _leave(self) -> None:
        self._reporter.line("leaving: state saved, withdrawing the lease")
        self._keeper.stop(timeout_s=STOP_TIMEOUT_S / 4)

    def _checkpoint_path(self, block: int) -> Path:
        return self._state_dir.checkpoint_path(self._manifest.run_id, block)

    def _describe(self, issued_at_s: float, expires_at_s: float) -> Lease:
        snapshot = self._record.snapshot
        return Lease(
            run_id=self._manifest.run_id,
            peer_id=self._peer.peer_id,
            boot_id=self._boot_id,
            block=self._block,
            state=self._state,
            round_index=self._round_served,
            loss=snapshot.loss,
            bytes_per_s=snapshot.bytes_per_s,
            partners=snapshot.last_partners,
            copies=self._served_copies(),
            addresses=self._addresses,
            issued_at_s=issued_at_s,
            expires_at_s=expires_at_s,
        )

    def _served_copies(self) -> list[BlockCopy]:
        copies = self._copies.get("span")
        rounds = {} if copies is None else copies.rounds
        return [
            BlockCopy(block=index, round_index=round_index)
            for index, round_index in rounds.items()
            if round_index is not None
        ]

    def _see(self, overview: SwarmOverview) -> None:
        """A fresh view of the swarm: remember whom we met."""
        self._view = overview
        met = [
            address
            for block in overview.blocks
            for lease in block.holders
            if lease.peer_id != self._peer.peer_id
            for address in lease.addresses
        ]
        if met:
            self._state_dir.remember_peers(met)

    def _say_how_to_join(self) -> None:
        addresses = self._peer.addresses()
        self._record.update(addresses=addresses)
        if addresses:
            self._reporter.line(f"others join with: {join_command(self._manifest, addresses[0])}")
        if self._is_first:
            self._reporter.line(
                f"first node of run {self._manifest.run_id}; it trains alone until others come"
            )
