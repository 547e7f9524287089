"""Tells the reasons of a running node as they come and go, and keeps its snapshot young."""

from __future__ import annotations

import logging

from bt_p2p.clock import Clock
from bt_p2p.protocol.limits import STOP_TIMEOUT_S
from node.events.changes import reason_events
from node.reasons.code import ReasonCode
from node.reasons.judge import reasons_of
from node.reasons.reason import Reason
from node.record import NodeRecord
from node.repeated_task import RepeatedTask

logger = logging.getLogger(__name__)

_PERIOD_S = 1.0


class ReasonWatch:
    """A thread that looks every second.

    It renews the time of the snapshot too: a node whose training hangs still reports, and so says
    itself that it is stalled; one that reports nothing is frozen as a whole.
    """

    def __init__(self, record: NodeRecord, clock: Clock) -> None:
        """Not running before `start`."""
        self._record = record
        self._clock = clock
        self._known: dict[ReasonCode, Reason] = {}
        self._task = RepeatedTask("reasons", self.look, period_s=_PERIOD_S)

    def start(self) -> None:
        """Begin to look."""
        self._task.start()

    def stop(self) -> None:
        """Look no more; idempotent."""
        self._task.stop(timeout_s=STOP_TIMEOUT_S / 8)

    def look(self) -> None:
        """Log and tell what is new and what is over; the code stands first, so that it can be searched."""
        snapshot = self._record.update()
        now = {reason.code: reason for reason in reasons_of(snapshot, now_s=self._clock.now_s())}
        for code, reason in now.items():
            if code not in self._known:
                level = logging.WARNING if reason.is_warning else logging.INFO
                logger.log(level, "reason %s; next: %s", reason.line, reason.next_action)
        for code in self._known.keys() - now.keys():
            logger.info("reason %s: over", code)
        for event in reason_events(self._known, now, at_s=self._clock.now_s()):
            self._record.tell(event)
        self._known = now
