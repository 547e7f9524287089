"""Can others dial this node? Asked of its neighbours, told in plain words, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from bt_p2p.errors import PeerError, ProtocolError
from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.limits import DHT_TIMEOUT_S
from bt_p2p.swarm.dial_back import Reachability
from bt_p2p.swarm.neighbour_help import ask_neighbours
from bt_p2p.swarm.process import SwarmPeer
from bt_p2p.swarm.relay import reserve
from node.reasons.code import ReasonCode
from node.record import NodeRecord
from node.standing import Standing, standing_of
from node.tui.progress import JoinReporter

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 20.0
_FIRST_PERIOD_S = 30.0
"""While nobody can tell."""
_PERIOD_S = 600.0
MAX_RELAYS = 3


def ask(peer: SwarmPeer) -> Reachability:
    """Have neighbours dial this peer back."""
    return peer.loop.run(ask_neighbours(peer.p2p), timeout_s=ASK_TIMEOUT_S)


def find_relays(peer: SwarmPeer, candidates: Sequence[PeerAddress]) -> list[PeerAddress]:
    """Those who hold a place for this peer, one address for each."""
    direct = {
        address.peer_id: address
        for address in reversed(candidates)
        if address.transport == "tcp" and not address.is_relayed
    }
    relays = [direct[peer_id] for peer_id in reversed(direct)]

    async def try_all() -> list[PeerAddress]:
        problems = await asyncio.gather(
            *(reserve(peer.p2p, relay.peer_id) for relay in relays), return_exceptions=True
        )
        for problem in problems:
            if isinstance(problem, BaseException) and not isinstance(problem, PeerError):
                raise problem
        return [relay for relay, problem in zip(relays, problems, strict=True) if problem is None][
            :MAX_RELAYS
        ]

    try:
        return peer.loop.run(try_all(), timeout_s=DHT_TIMEOUT_S)
    except TimeoutError:
        logger.warning("no peer said within %g s whether it relays", DHT_TIMEOUT_S)
        return []


def standing_behind(peer: SwarmPeer) -> Standing:
    """What to tell of a node that is found behind relays."""
    held = () if peer.places is None else peer.places.held
    if held:
        names = ", ".join(map(short_peer_id, held))
        return Standing(reachable="relayed", detail=f"others reach it through {names}")
    problems = {} if peer.places is None else peer.places.problems
    return Standing(
        reachable="no",
        detail=f"no relay holds a place for it ({'; '.join(problems.values()) or 'none known'}): "
        f"the swarm needs one public node",
    )


class ReachabilityWatch:
    """Asks again and again while the node runs, and keeps its record up to date."""

    def __init__(self, peer: SwarmPeer, record: NodeRecord, reporter: JoinReporter, port: int):
        """Nothing is asked before `start`."""
        self._peer = peer
        self._record = record
        self._reporter = reporter
        self._port = port

    def start(self) -> None:
        """Begin, on the peer's own loop, with which it ends."""
        self._peer.loop.start(self._run())

    async def _run(self) -> None:
        try:
            await self._watch()
        except Exception:  # nobody waits for this task
            logger.exception("reachability is no longer watched")

    async def _watch(self) -> None:
        while True:
            is_known = self._record.snapshot.reachable not in ("", "unknown")
            is_relayed = self._peer.places is not None
            await asyncio.sleep(_PERIOD_S if is_known and not is_relayed else _FIRST_PERIOD_S)
            if is_relayed:
                self._tell(standing_behind(self._peer))
                continue
            found = await ask_neighbours(self._peer.p2p)
            if found.verdict != "unknown":
                self._tell(standing_of(found, port=self._port))

    def _tell(self, standing: Standing) -> None:
        before = self._record.snapshot.reachable
        tell(standing, self._record)
        if standing.reachable != before:
            self._reporter.line(f"reachable: {standing.reachable}: {standing.detail}")


def tell(standing: Standing, record: NodeRecord) -> None:
    """Write it to the record, as a warning too if its owner should act."""
    record.update(reachable=standing.reachable, reachable_detail=standing.detail)
    record.show(ReasonCode.NOT_REACHABLE, standing.detail if standing.reachable == "no" else "")


Start = Callable[[tuple[PeerAddress, ...]], SwarmPeer]
"""Starts the peer of this node, behind some relays or, with none, at its own addresses."""


def settle(
    peer: SwarmPeer,
    start: Start,
    candidates: Sequence[PeerAddress],
    reporter: JoinReporter,
    *,
    port: int,
    is_outbound_only: bool,
) -> tuple[SwarmPeer, Standing]:
    """Leave a node as it is if others can dial it; else start it again behind relays, if any.

    Args:
        peer: as it was started first; stopped if another takes its place.
        start: starts another.
        candidates: peers that may be relays.
        reporter: tells the user.
        port: where the node listens, for advice.
        is_outbound_only: the user knows that nobody can dial it.
    """
    standing = Standing(reachable="no", detail="it accepts no incoming connections")
    if not is_outbound_only:
        try:
            standing = standing_of(ask(peer), port=port)
        except (TimeoutError, PeerError, ProtocolError) as exc:
            logger.warning("asking others to dial this node failed: %s", exc)
            standing = Standing(reachable="unknown", detail="no other peer could tell yet")
    if standing.reachable != "no":
        return peer, standing
    reporter.line(f"others cannot dial this node: {standing.detail}")
    relays = find_relays(peer, candidates)
    if not relays:
        reporter.line("no peer relays for this node either: the swarm needs one public node")
        return peer, Standing(
            reachable="no", detail=f"{standing.detail}; the swarm needs one public node"
        )
    peer.stop()
    behind = start(tuple(relays))
    found = standing_behind(behind)
    reporter.line(f"reachable: {found.reachable}: {found.detail}")
    return behind, found
