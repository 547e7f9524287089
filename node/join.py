"""`bt-node join`: one volunteer, from arguments to a clean exit.

Order matters: arguments, files and memory are checked before any network; hivemind's processes are
forked before the model and other threads exist; everything stops in reverse.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bt_p2p.averaging.schedule import payload_size_bytes
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.clock import SystemClock
from bt_p2p.corpus.corpus import Corpus, load_corpus, require_context
from bt_p2p.errors import BootstrapError, ConfigError, SwarmError, TrainingError
from bt_p2p.model.block import Block
from bt_p2p.model.checkpoint import load_checkpoint, save_checkpoint
from bt_p2p.model.device import pick_device
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.assignment import check_block, choose_block
from bt_p2p.protocol.identity import PeerIdentity, load_or_create_identity, short_peer_id
from bt_p2p.protocol.lease import Lease, LeaseState
from bt_p2p.protocol.limits import DHT_TIMEOUT_S, MAX_ROUND_LAG, SETTLE_S, STOP_TIMEOUT_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from bt_p2p.swarm.averager import HivemindAverager
from bt_p2p.swarm.block_rpc import HivemindBlockClient, HivemindBlockServer
from bt_p2p.swarm.directory import HivemindDirectory
from bt_p2p.swarm.listen import check_port_is_free, listen_address
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer
from bt_p2p.training.data import BatchSource
from bt_p2p.training.trainer import BlockTrainer
from node.keeper import LeaseKeeper
from node.manifests import choose_run, join_command, read_manifest
from node.record import NodeRecord
from node.resources import check_disk, check_memory
from node.rounds import RoundResult, RoundRunner
from node.snapshot import NodeSnapshot
from node.state_dir import NodeLock, StateDir
from node.stop import StopRequest
from node.sync import donors, fetch_weights
from node.tui.progress import JoinReporter

logger = logging.getLogger(__name__)

_SAVE_PERIOD_S = 60.0
_SYNC_TIMEOUT_S = 3600.0
_MAX_RESTARTS_OF_TRAINING = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinOptions:
    """What the user asked for."""

    initial_peers: tuple[PeerAddress, ...]
    state_dir: StateDir
    identity_path: Path | None
    manifest_path: Path | None
    run: str | None
    block: int | None
    data: Path | None
    host: str
    port: int
    announce: tuple[str, ...]
    device: str
    max_rounds: int | None
    """End after this many rounds; None goes on until a signal."""


def run_node(options: JoinOptions, reporter: JoinReporter, stop: StopRequest) -> None:
    """Run a volunteer until it is asked to stop.

    Raises:
        ConfigError: something the user gave is wrong.
        BtError: the swarm cannot be joined, or the node cannot go on.
    """
    clock = SystemClock()
    state = options.state_dir
    state.create()
    identity_path = options.identity_path or state.identity_path
    identity, is_new = load_or_create_identity(identity_path)
    if is_new:
        reporter.line(f"new identity {identity.peer_id} in {identity_path}: back this file up")
    with contextlib.ExitStack() as stack:
        stack.enter_context(NodeLock(state))
        check_port_is_free(options.host, options.port)
        manifest = _known_manifest(options)
        corpus = _checked_corpus(manifest, options) if manifest else None
        peer = _enter_swarm(options, identity_path, reporter)
        stack.callback(peer.stop)
        directory = HivemindDirectory(peer.dht, identity)
        if manifest is None:
            manifest = choose_run(directory.runs(), options.run)
            reporter.line(f"fetched the manifest of run {manifest.run_id} and verified it")
        state.remember_manifest(manifest)
        peer.protect_run(manifest)
        if corpus is None:
            corpus = _checked_corpus(manifest, options)
        snapshot = _first_snapshot(peer, manifest, state, clock)
        record = NodeRecord(state.path, snapshot, clock)
        stack.callback(record.write)
        volunteer = _Volunteer(
            options, manifest, corpus, identity, peer, directory, record, reporter, stop, clock
        )
        volunteer.run()


class _Volunteer:
    """The parts of a joined node, and the order in which they start and stop."""

    def __init__(
        self,
        options: JoinOptions,
        manifest: RunManifest,
        corpus: Corpus,
        identity: PeerIdentity,
        peer: SwarmPeer,
        directory: HivemindDirectory,
        record: NodeRecord,
        reporter: JoinReporter,
        stop: StopRequest,
        clock: SystemClock,
    ) -> None:
        self._options = options
        self._manifest = manifest
        self._corpus = corpus
        self._identity = identity
        self._peer = peer
        self._record = record
        self._reporter = reporter
        self._stop = stop
        self._clock = clock
        self._boot_id = secrets.token_hex(4)
        self._addresses = peer.addresses()[:2]
        self._block: int | None = options.block
        self._state: LeaseState = "joining"
        self._round_served = 0
        self._view: SwarmOverview | None = None
        self._payload_sent_bytes = 0
        self._keeper = LeaseKeeper(directory, manifest, self._describe, clock, self._see)

    def run(self) -> None:
        """Join, train, leave."""
        self._say_how_to_join()
        with contextlib.ExitStack() as stack:
            block = self._settle()
            # forked before anything else has threads
            averager = HivemindAverager(
                self._peer.dht, self._manifest, block, _weight_shapes(self._manifest)
            )
            stack.callback(averager.stop)
            trainer = self._make_trainer(block)
            service = LocalBlockService(self._manifest, block)
            service.adopt(trainer.weights(), trainer.round_index)
            server = HivemindBlockServer(self._peer.p2p, service)
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
        self._record.update(state="joining")
        self._keeper.renew()
        if self._block is None:
            held = self._options.state_dir.held_blocks(self._manifest.run_id)
            if held and held[0] < num_blocks:
                self._block = held[0]
                self._reporter.line(f"block {self._block}: this node trained it before")
            else:
                self._stop.event.wait(SETTLE_S)
                overview = self._keeper.view()
                self._block = choose_block(overview, self._peer.peer_id)
                holders = [len(block.holders) for block in overview.blocks]
                self._reporter.line(
                    f"block {self._block}: the thinnest (holders by block: {holders}, "
                    f"{len(overview.joining)} joining)"
                )
        check_block(self._block, num_blocks)
        self._record.update(block=self._block)
        self._keeper.renew()
        return self._block

    def _make_trainer(self, block: int) -> BlockTrainer:
        device = pick_device(self._options.device)
        self._reporter.line(f"training on {device.reason}")
        self._record.update(device=device.reason)
        spec = self._manifest
        source = BatchSource(self._corpus.train, spec.model.context, spec.optimizer.batch_size)
        trainer = BlockTrainer(spec, block, device, source, self._peer.peer_id)
        checkpoint = load_checkpoint(self._checkpoint_path(block))
        if checkpoint is not None:
            trainer.restore(checkpoint)
            self._reporter.line(f"resumed from round {trainer.round_index} in {checkpoint.path}")
        return trainer

    def _catch_up(self, trainer: BlockTrainer, service: LocalBlockService) -> None:
        """Take the current weights from a replica that is ahead, if there is one.

        Raises:
            SwarmError: there are replicas ahead, but none gives its weights.
        """
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
        client = HivemindBlockClient(self._peer.p2p)
        expected = {
            name: (tuple(tensor.shape), tensor.dtype) for name, tensor in trainer.weights().items()
        }
        synced = self._peer.loop.run(
            fetch_weights(
                client, ahead, expected=expected, min_round_index=trainer.round_index + 1
            ),
            timeout_s=_SYNC_TIMEOUT_S,
        )
        trainer.load_weights(synced.weights)
        trainer.round_index = synced.round_index
        self._adopt(trainer, service)
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
            self._adopt(trainer, service)
            self._tell(result, service, server)
            if self._clock.monotonic_s() - saved_at_s >= _SAVE_PERIOD_S:
                self._save(trainer)
                saved_at_s = self._clock.monotonic_s()
            if num_rounds == self._options.max_rounds:
                return
            self._catch_up_if_behind(trainer, service)

    def _catch_up_if_behind(self, trainer: BlockTrainer, service: LocalBlockService) -> None:
        view = self._view
        assert self._block is not None
        newest = view.blocks[self._block].round_index if view else None
        if newest is None or newest - trainer.round_index <= MAX_ROUND_LAG:
            return
        try:
            self._catch_up(trainer, service)
            self._record.clear("behind")
        except (SwarmError, TimeoutError) as exc:
            self._record.warn("behind", f"{newest - trainer.round_index} rounds; {exc}")

    def _adopt(self, trainer: BlockTrainer, service: LocalBlockService) -> None:
        """Serve what was just agreed on, and say so."""
        service.adopt(trainer.weights(), trainer.round_index)
        self._round_served = trainer.round_index
        self._record.update(round_index=trainer.round_index)
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

    def _leave(self) -> None:
        self._reporter.line("leaving: state saved, withdrawing the lease")
        self._keeper.stop(timeout_s=STOP_TIMEOUT_S / 4)

    def _checkpoint_path(self, block: int) -> Path:
        return self._options.state_dir.checkpoint_path(self._manifest.run_id, block)

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
            addresses=self._addresses,
            issued_at_s=issued_at_s,
            expires_at_s=expires_at_s,
        )

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
            self._options.state_dir.remember_peers(met)

    def _say_how_to_join(self) -> None:
        addresses = self._peer.addresses()
        self._record.update(addresses=addresses)
        if addresses:
            self._reporter.line(f"others join with: {join_command(self._manifest, addresses[0])}")
        if not self._options.initial_peers:
            self._reporter.line(
                f"first node of run {self._manifest.run_id}; it trains alone until others come"
            )


def _known_manifest(options: JoinOptions) -> RunManifest | None:
    """The manifest as far as it is known without the network; None if the swarm has to tell."""
    if options.manifest_path is not None:
        return read_manifest(options.manifest_path, run=options.run)
    remembered = options.state_dir.remembered_manifests()
    fitting = {
        run_id: manifest
        for run_id, manifest in remembered.items()
        if options.run is not None and run_id.startswith(options.run)
    }
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if options.initial_peers or options.state_dir.remembered_peers():
        return None
    if remembered:
        return choose_run(remembered, options.run)
    if options.run is not None:
        raise ConfigError(
            f"run {options.run} is not known here; name a peer of it with --initial-peers, or its "
            f"manifest with --manifest"
        )
    return RunManifest()


def _checked_corpus(manifest: RunManifest, options: JoinOptions) -> Corpus:
    """Everything about this run that can fail on this machine, before time is spent on it."""
    if options.block is not None:
        check_block(options.block, manifest.model.num_blocks)
    sizes = block_sizes(
        manifest.model, manifest.objective, batch_size=manifest.optimizer.batch_size
    )
    check_memory(sizes)
    check_disk(options.state_dir.path, sizes)
    corpus = load_corpus(manifest.corpus, data=options.data, cache_dir=options.state_dir.cache_dir)
    require_context(corpus, manifest.model.context)
    return corpus


def _enter_swarm(options: JoinOptions, identity_path: Path, reporter: JoinReporter) -> SwarmPeer:
    """Start the peer, through the peers named or those met before."""

    def start(peers: tuple[PeerAddress, ...]) -> SwarmPeer:
        return start_peer(
            PeerOptions(
                initial_peers=peers,
                identity_path=identity_path,
                listen=(listen_address(options.host, options.port),),
                announce=options.announce,
            )
        )

    remembered = tuple(options.state_dir.remembered_peers())
    if options.initial_peers:
        peer = start(options.initial_peers)
    else:
        try:
            peer = start(remembered)
        except BootstrapError as exc:
            reporter.line(f"none of {len(remembered)} peers met before answers: {exc}")
            peer = start(())
    for problem in peer.unreachable:
        reporter.line(f"initial peer skipped: {problem}")
    return peer


def _weight_shapes(manifest: RunManifest) -> Mapping[str, tuple[int, ...]]:
    block = Block(manifest.model, manifest.objective)
    return {name: tuple(parameter.shape) for name, parameter in block.named_parameters()}


def _first_snapshot(
    peer: SwarmPeer, manifest: RunManifest, state: StateDir, clock: SystemClock
) -> NodeSnapshot:
    return NodeSnapshot(
        pid=os.getpid(),
        peer_id=peer.peer_id,
        run_id=manifest.run_id,
        started_at_s=clock.now_s(),
        state_dir=str(state.path),
    )
