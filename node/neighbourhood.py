"""Keeps a node connected: dials peers it knows, soon when it has no neighbour left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bt_p2p.clock import Clock
from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.clock_vote import clock_problem
from bt_p2p.protocol.limits import CLOCK_PERIOD_S, NEIGHBOURS_PERIOD_S, STOP_TIMEOUT_S
from bt_p2p.swarm.neighbours import clock_leads_s, meet, neighbours
from bt_p2p.swarm.process import SwarmPeer
from node.isolation import Isolation
from node.reasons.code import ReasonCode
from node.repeated_task import RepeatedTask

logger = logging.getLogger(__name__)

_MAX_DIALS = 16
"""Peers dialled at once by a node without neighbours."""
_MAX_ROUTINE_DIALS = 4

Show = Callable[[ReasonCode, str], None]
"""Shows a reason with its evidence; an empty text takes it back."""


class Neighbourhood:
    """A thread that looks after the connections of a node, and after its clock.

    Attributes:
        clock_problem: what is wrong with this computer's clock; empty if nothing.
    """

    def __init__(
        self,
        peer: SwarmPeer,
        known: Callable[[], Sequence[PeerAddress]],
        show: Show,
        clock: Clock,
        *,
        on_rejoin: Callable[[], None] = lambda: None,
    ) -> None:
        """Not running before `start`.

        Args:
            peer: the node's peer.
            known: whom it could dial, those to be tried first at the front.
            show: shows what the user should know.
            clock: tells the time.
            on_rejoin: called when an isolated node has a neighbour again.
        """
        self._peer = peer
        self._known = known
        self._show = show
        self._clock = clock
        self._on_rejoin = on_rejoin
        self._isolation = Isolation()
        self._isolation.dialled(now_s=clock.monotonic_s())  # the start was a dial
        self._clocks_due_s = float("-inf")
        self._task = RepeatedTask("neighbours", self.look, period_s=NEIGHBOURS_PERIOD_S)
        self.clock_problem = ""

    def start(self) -> None:
        """Begin to look."""
        self._task.start()

    def stop(self) -> None:
        """Look no more; idempotent."""
        self._task.stop(timeout_s=STOP_TIMEOUT_S / 8)

    def look(self) -> None:
        """Count neighbours, dial if it is time, compare clocks if it is time.

        Raises:
            SwarmError: the DHT process does not answer.
        """
        connected = neighbours(self._peer)
        strangers = [
            address
            for address in self._known()
            if address.peer_id not in connected and address.peer_id != self._peer.peer_id
        ]
        self._see(len(connected), len(strangers))
        if strangers and self._isolation.is_due(self._clock.monotonic_s()):
            met = meet(self._peer, self._choose(strangers))
            self._isolation.dialled(now_s=self._clock.monotonic_s())
            if met:
                logger.info("met %d known peers again", len(met))
                self._see(len(met), len(strangers))
        if connected:
            self._show(ReasonCode.BOOTSTRAP_UNREACHABLE, "")
            self._compare_clocks()

    def _choose(self, strangers: Sequence[PeerAddress]) -> Sequence[PeerAddress]:
        if self._isolation.alone_since_s is not None:
            return strangers[:_MAX_DIALS]
        number = min(len(strangers), _MAX_ROUTINE_DIALS)
        return self._isolation.chance.sample(strangers, number)

    def _see(self, num_neighbours: int, num_known: int) -> None:
        """Take note, and say what has changed."""
        now_s = self._clock.monotonic_s()
        isolation = self._isolation
        isolation.see(num_neighbours=num_neighbours, num_known=num_known, now_s=now_s)
        if isolation.is_isolated(now_s) and not isolation.is_told:
            assert isolation.alone_since_s is not None
            since_s = self._clock.now_s() - (now_s - isolation.alone_since_s)
            text = (
                f"since {datetime.fromtimestamp(since_s, tz=UTC).astimezone():%H:%M:%S} no peer is "
                f"connected; {num_known} known addresses are dialled again and again; check that "
                f"this computer is online"
            )
            isolation.is_told = True
            logger.warning("isolated: %s", text)
            self._show(ReasonCode.ISOLATED, text)
        elif isolation.is_told and isolation.alone_since_s is None:
            isolation.is_told = False
            logger.warning("no longer isolated: %d neighbours", num_neighbours)
            self._show(ReasonCode.ISOLATED, "")
            self._on_rejoin()

    def _compare_clocks(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._clocks_due_s:
            return
        self._clocks_due_s = now_s + CLOCK_PERIOD_S
        problem = clock_problem(clock_leads_s(self._peer))
        if bool(problem) != bool(self.clock_problem):
            logger.warning("%s", problem or "the clock is right again")
            self._show(ReasonCode.CLOCK_OFF, problem)
        self.clock_problem = problem
