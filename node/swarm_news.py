"""What a node logs of the swarm around it: who came and went, and now and then the whole."""

from __future__ import annotations

from bt_p2p.clock import Clock
from bt_p2p.protocol.overview import SwarmOverview
from node.events.changes import MAX_PEERS, peer_events, swarm_seen
from node.record import NodeRecord

_SWARM_SEEN_S = 30.0
"""The swarm is told as an event at most this often while nobody comes or goes."""


class SwarmNews:
    """Compares each view of the swarm with the one before."""

    def __init__(self, record: NodeRecord, clock: Clock, *, mine: str, round_s: float) -> None:
        """Nothing has been seen yet.

        Args:
            record: is told the events.
            clock: DHT time.
            mine: the node's own peer id, which is no news.
            round_s: of the run.
        """
        self._record = record
        self._clock = clock
        self._mine = mine
        self._period_s = max(_SWARM_SEEN_S, round_s)
        self._seen: SwarmOverview | None = None
        self._told_at_s = float("-inf")

    def see(self, overview: SwarmOverview) -> None:
        """Tell what is new in a view."""
        at_s = self._clock.now_s()
        events = peer_events(self._seen, overview, mine=self._mine, at_s=at_s)
        for event in events:
            self._record.tell(event)
        self._seen = overview
        is_news = bool(events) and overview.num_peers <= MAX_PEERS  # a large swarm always changes
        if is_news or self._clock.monotonic_s() - self._told_at_s >= self._period_s:
            self._told_at_s = self._clock.monotonic_s()
            self._record.tell(swarm_seen(overview, mine=self._mine, at_s=at_s))
