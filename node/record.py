"""What a running node knows of itself: written by its threads, read as whole snapshots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bt_p2p.clock import Clock
from node.events.changes import node_events
from node.events.event import Event
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.snapshot import MAX_LOSS_HISTORY, NodeSnapshot, write_snapshot

logger = logging.getLogger(__name__)

_WRITE_PERIOD_S = 1.0


class NodeRecord:
    """The current snapshot, kept in one file that `status` reads; its changes are told as events."""

    def __init__(
        self,
        state_dir: Path,
        snapshot: NodeSnapshot,
        clock: Clock,
        *,
        tell: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Start from a first snapshot.

        Args:
            state_dir: where the file is.
            snapshot: the node now.
            clock: dates changes and events.
            tell: gets each event, from the thread that made it happen.
        """
        self.tell = tell
        self._state_dir = state_dir
        self._clock = clock
        self._lock = threading.Lock()  # held while events are told, so that they keep their order
        self._file_lock = threading.Lock()
        self._snapshot = snapshot
        self._written_at_s = float("-inf")
        self._has_failed = False

    @property
    def snapshot(self) -> NodeSnapshot:
        """The node at this moment."""
        with self._lock:
            return self._snapshot

    def update(self, **changes: Any) -> NodeSnapshot:
        """Change fields of the snapshot; the file follows at most once a second."""
        now_s = self._clock.monotonic_s()
        changes["updated_at_s"] = self._clock.now_s()
        with self._lock:
            snapshot = self._change(changes)
            is_due = now_s - self._written_at_s >= _WRITE_PERIOD_S
            if is_due:
                self._written_at_s = now_s
        if is_due:
            self.write()
        return snapshot

    def add_loss(self, loss: float) -> None:
        """Append the mean cross entropy of a finished round."""
        with self._lock:
            history = [*self._snapshot.loss_history, loss][-MAX_LOSS_HISTORY:]
            self._change({"loss_history": history})

    def note(self, code: ReasonCode, evidence: str) -> None:
        """Show a reason until `clear` is called with its code; the time of its first is kept."""
        now_s = self._clock.now_s()
        with self._lock:
            noted = self._snapshot.noted
            since_s = next((each.since_s for each in noted if each.code is code), now_s)
            others = [each for each in noted if each.code is not code]
            reason = Reason(code=code, evidence=evidence, since_s=since_s)
            self._change({"noted": [*others, reason]})

    def clear(self, code: ReasonCode) -> None:
        """Take a reason back."""
        with self._lock:
            others = [each for each in self._snapshot.noted if each.code is not code]
            self._change({"noted": others})

    def show(self, code: ReasonCode, evidence: str) -> None:
        """Note a reason, or clear it if the evidence is empty."""
        if evidence:
            self.note(code, evidence)
        else:
            self.clear(code)

    def _change(self, changes: dict[str, Any]) -> NodeSnapshot:
        before = self._snapshot
        self._snapshot = before.model_copy(update=changes)
        for event in node_events(before, self._snapshot, at_s=self._clock.now_s()):
            self.tell(event)
        return self._snapshot

    def write(self) -> None:
        """Write the file now; a full disk is logged once and does not stop the node."""
        with self._file_lock:
            try:
                write_snapshot(self._state_dir, self.snapshot)
                self._has_failed = False
            except OSError as exc:
                if not self._has_failed:
                    logger.warning(
                        "cannot write the node's snapshot in %s: %s", self._state_dir, exc
                    )
                self._has_failed = True
