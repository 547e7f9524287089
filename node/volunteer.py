"""A joined node: the parts it is made of, and the order in which they start and stop.

What it does all the time between start and stop is in `node.replica`.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import sys
from collections.abc import Collection, Mapping

from torch import Tensor

from bt_p2p.averaging.gate import Gate
from bt_p2p.chain.block_rpc import BlockService
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.chain.span import SpanService
from bt_p2p.model.block import weight_specs
from bt_p2p.model.device import DeviceChoice, pick_device
from bt_p2p.model.upstream import UpstreamStack
from bt_p2p.protocol.address import parse_peer_address
from bt_p2p.protocol.assignment import check_block, choose_block
from bt_p2p.protocol.lease import BlockCopy, Lease, LeaseState
from bt_p2p.protocol.limits import (
    DHT_TIMEOUT_S,
    HEALTH_TIMEOUT_S,
    MAX_ROUND_LAG,
    SETTLE_S,
    STOP_TIMEOUT_S,
)
from bt_p2p.protocol.overview import SwarmOverview
from bt_p2p.swarm.averager import HivemindAverager
from bt_p2p.swarm.block_rpc import HivemindBlockClient, HivemindBlockServer
from bt_p2p.swarm.health import averager_problem, peer_problem
from bt_p2p.training.data import BatchSource
from bt_p2p.training.heldout import HeldOutProbe
from bt_p2p.training.trainer import BlockTrainer
from node.control.server import ControlServer
from node.copies import Adopt, BlockCopies
from node.events.event import Stopped, shortened
from node.health_watch import HealthWatch
from node.http.node_server import serve_node
from node.joined import Joined
from node.keeper import LeaseKeeper
from node.manifests import join_command
from node.neighbourhood import Neighbourhood
from node.reasons.code import ReasonCode
from node.reasons.watch import ReasonWatch
from node.replica import Replica
from node.stop import StopRequest
from node.swarm_news import SwarmNews
from node.tui.progress import JoinReporter

_COPIES = {
    ReasonCode.UPSTREAM_NOT_FRESH: "training on",
    ReasonCode.COPY_NOT_FRESH: "serving",
}
"""What is the matter where copies of others' blocks are old, and what they are for."""


class Volunteer:
    """The parts of a joined node, and the order in which they start and stop."""

    def __init__(self, joined: Joined, reporter: JoinReporter, stop: StopRequest) -> None:
        self._joined = joined
        self._manifest = joined.manifest
        self._corpus = joined.corpus
        self._peer = joined.peer
        self._state_dir = joined.state_dir
        self._device = joined.device
        self._record = joined.record
        self._reporter = reporter
        self._stop = stop
        self._boot_id = secrets.token_hex(4)
        self._addresses = joined.peer.addresses()[:2]
        self._block = joined.block
        self._span = joined.span
        self._copies: dict[ReasonCode, BlockCopies] = {}
        self._state: LeaseState = "joining"
        self._replica: Replica | None = None
        self._is_first = joined.is_first
        self._news = SwarmNews(
            joined.record,
            joined.clock,
            mine=joined.peer.peer_id,
            round_s=joined.manifest.rounds.round_s,
        )
        self._keeper = LeaseKeeper(
            joined.directory, joined.manifest, self._describe, joined.clock, self._see
        )
        self._neighbourhood = Neighbourhood(
            joined.peer,
            lambda: [*joined.initial_peers, *joined.state_dir.remembered_peers()],
            joined.record.show,
            joined.clock,
            on_rejoin=self._keeper.poke,
        )

    def run(self) -> None:
        """Join, train, leave."""
        self._say_how_to_join()
        with contextlib.ExitStack() as stack:
            stack.callback(self._break_off_start)
            block = self._settle()
            # forked before anything else has threads
            shapes = {name: shape for name, (shape, _) in weight_specs(self._manifest).items()}
            averager = HivemindAverager(
                self._peer.dht, self._manifest, block, shapes, self._joined.membership
            )
            stack.callback(
                lambda: averager.kill() if self._stop.rebuild_reason else averager.stop()
            )
            self._watch(averager, stack)
            self._serve_http(stack)
            device = pick_device(self._device)
            upstream = self._make_upstream(block, device, stack)
            service = LocalBlockService(self._manifest, block)
            replica = Replica(
                self._joined,
                block,
                self._make_trainer(block, device, upstream),
                self._make_gate(block, device, upstream),
                service,
                self._keeper,
                self._reporter,
                self._stop,
            )
            self._replica = replica
            server = HivemindBlockServer(self._peer.p2p, self._make_span(service, stack))
            self._peer.loop.run(server.start(), timeout_s=DHT_TIMEOUT_S)
            self._reporter.watch(lambda: self._record.snapshot)
            stack.callback(self._leave)
            self._mind_manners(stack)
            self._stop.is_starting = False  # from here on it ends in order
            self._keeper.start()  # a download may outlast a lease
            if not self._joined.manners.is_paused:
                replica.catch_up()
            self._state = "training"
            self._keeper.poke()
            replica.train(
                averager,
                server,
                between_rounds=self._between_rounds,
                is_clock_right=lambda: not self._neighbourhood.clock_problem,
                copied_bytes=lambda: sum(each.bytes_received for each in self._copies.values()),
            )

            if self._joined.manners.is_finishing and not self._stop.is_requested:
                self._reporter.line("leaving, as you asked with bt-node finish")
                self._joined.manners.ask(is_finishing=False)

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

    def _watch(self, averager: HivemindAverager, stack: contextlib.ExitStack) -> None:
        """From now on a part that breaks is noticed, and connections that are lost are renewed."""
        health = HealthWatch(
            [
                functools.partial(peer_problem, self._peer, timeout_s=HEALTH_TIMEOUT_S),
                functools.partial(averager_problem, averager, timeout_s=HEALTH_TIMEOUT_S),
            ],
            self._stop.ask_to_rebuild,
        )
        for watch in (health, self._neighbourhood, ReasonWatch(self._record, self._joined.clock)):
            watch.start()
            stack.callback(watch.stop)

    def _mind_manners(self, stack: contextlib.ExitStack) -> None:
        """From now on the user's commands and rules are obeyed; they show in the lease as well."""
        manners = self._joined.manners
        manners.on_change(self._show_manners)
        self._show_manners()
        manners.start()
        stack.callback(manners.stop, timeout_s=STOP_TIMEOUT_S / 8)
        control = ControlServer(
            self._state_dir.path, manners, lambda: self._record.snapshot, self._joined.clock
        )
        control.start()
        stack.callback(control.stop, timeout_s=STOP_TIMEOUT_S / 8)
        if manners.is_finishing:
            self._reporter.line("leaves after a round, as asked before; not if you: bt-node resume")

    def _show_manners(self) -> None:
        pause = self._joined.manners.pause
        self._record.update(
            pause_reason="" if pause is None else pause.reason.value,
            pause_words="" if pause is None else pause.words,
            pause_until_s=None if pause is None else pause.until_s,
            is_finishing=self._joined.manners.is_finishing,
        )
        self._record.write()
        self._record.show(ReasonCode.MEMORY_OVER_CAP, self._joined.manners.memory_problem)
        self._keeper.poke()

    def _serve_http(self, stack: contextlib.ExitStack) -> None:
        """All processes are forked: from here on there may be a port of our own."""
        joined = self._joined
        server = serve_node(
            joined.http,
            lambda: self._record.snapshot,
            joined.clock,
            self._reporter.line,
            joined.supervisor,
        )
        if server is not None:
            stack.callback(server.stop)

    def _make_upstream(
        self, block: int, device: DeviceChoice, stack: contextlib.ExitStack
    ) -> UpstreamStack:
        """What `cascade` trains on, kept fresh; other objectives copy nothing."""
        num_copies = block if self._manifest.objective.name == "cascade" else 0
        upstream = UpstreamStack(self._manifest, num_copies, device.device)
        self._copy(
            ReasonCode.UPSTREAM_NOT_FRESH,
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
        self._copy(ReasonCode.COPY_NOT_FRESH, others, adopt, MAX_ROUND_LAG, stack)
        return SpanService(services)

    def _copy(
        self,
        purpose: ReasonCode,
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
        return BlockTrainer(
            spec,
            block,
            device,
            source,
            self._peer.peer_id,
            upstream=upstream,
            num_parts=self._joined.num_parts,
        )

    def _make_gate(self, block: int, device: DeviceChoice, upstream: UpstreamStack) -> Gate:
        probe = HeldOutProbe(
            self._manifest,
            block,
            device,
            self._corpus.heldout,
            seed=secrets.randbits(64),
            upstream=upstream,
        )
        return Gate(self._peer.peer_id, probe)

    # --- between rounds ------------------------------------------------------------------------

    def _between_rounds(self) -> None:
        self._record.show(ReasonCode.SWARM_NO_ANSWER, self._keeper.problem)
        self._refresh_copies()

    def _refresh_copies(self) -> None:
        view = self._keeper.latest
        if view is None:
            return
        for purpose, copies in self._copies.items():
            for index in copies.between_rounds(view):
                self._reporter.line(f"{_COPIES[purpose]} a copy of block {index} from now on")
            self._record.show(purpose, copies.problem)

    # --- leaving, and what others see ----------------------------------------------------------

    def _break_off_start(self) -> None:
        """Withdraw what was announced, if it ends before it has begun to train."""
        if self._stop.is_starting:
            self._keeper.stop(
                timeout_s=STOP_TIMEOUT_S / 4, is_back_soon=bool(self._stop.rebuild_reason)
            )

    def _leave(self) -> None:
        is_back_soon = bool(self._stop.rebuild_reason)
        if not is_back_soon:
            self._reporter.line("leaving: withdrawing the lease")
        self._keeper.stop(timeout_s=STOP_TIMEOUT_S / 4, is_back_soon=is_back_soon)
        self._record.tell(Stopped(at_s=self._joined.clock.now_s(), reason=self._end_words()))

    def _end_words(self) -> str:
        if self._stop.signal_number:
            return f"signal {self._stop.signal_number}"
        error = sys.exception()
        return shortened(self._stop.rebuild_reason or str(error or "it was done"))

    def _describe(self, issued_at_s: float, expires_at_s: float) -> Lease:
        snapshot = self._record.snapshot
        return Lease(
            run_id=self._manifest.run_id,
            peer_id=self._peer.peer_id,
            boot_id=self._boot_id,
            block=self._block,
            state=self._state,
            round_index=0 if self._replica is None else self._replica.round_served,
            loss=snapshot.loss,
            bytes_per_s=snapshot.bytes_per_s,
            is_paused=self._joined.manners.is_paused,
            partners=snapshot.last_partners,
            copies=self._served_copies(),
            addresses=self._addresses,
            is_relayed=self._peer.places is not None,
            membership=self._joined.membership,
            issued_at_s=issued_at_s,
            expires_at_s=expires_at_s,
        )

    def _served_copies(self) -> list[BlockCopy]:
        copies = self._copies.get(ReasonCode.COPY_NOT_FRESH)
        rounds = {} if copies is None else copies.rounds
        return [
            BlockCopy(block=index, round_index=round_index)
            for index, round_index in rounds.items()
            if round_index is not None
        ]

    def _see(self, overview: SwarmOverview) -> None:
        """A fresh view: remember whom we met, tell who came and went, and who else has our key."""
        self._news.see(overview)
        twin = self._keeper.twins.words(now_s=self._joined.clock.now_s())
        self._record.show(ReasonCode.SAME_KEY_ELSEWHERE, twin)
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
        if addresses and self._peer.places is None:
            command, remark = (
                join_command(self._manifest, addresses[0]),
                parse_peer_address(addresses[0]).remark,
            )
            self._reporter.line(
                f"others join with: {command}   # {remark}"
                if remark
                else f"others join with: {command}"
            )
        if self._is_first:
            self._reporter.line(
                f"first node of run {self._manifest.run_id}; it trains alone until others come"
            )
