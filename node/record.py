"""What a running node knows of itself: written by its threads, read as whole snapshots."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from bt_p2p.clock import Clock
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.snapshot import NodeSnapshot, write_snapshot

logger = logging.getLogger(__name__)

_WRITE_PERIOD_S = 1.0
_MAX_LOSS_HISTORY = 60


class NodeRecord:
    """The current snapshot, kept in one file that `status` reads."""

    def __init__(self, state_dir: Path, snapshot: NodeSnapshot, clock: Clock) -> None:
        """Start from a first snapshot."""
        self._state_dir = state_dir
        self._clock = clock
        self._lock = threading.Lock()
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
        with self._lock:
            changes["updated_at_s"] = self._clock.now_s()
            self._snapshot = self._snapshot.model_copy(update=changes)
            snapshot = self._snapshot
            is_due = now_s - self._written_at_s >= _WRITE_PERIOD_S
            if is_due:
                self._written_at_s = now_s
        if is_due:
            self.write()
        return snapshot

    def add_loss(self, loss: float) -> None:
        """Append the mean cross entropy of a finished round."""
        with self._lock:
            history = [*self._snapshot.loss_history, loss][-_MAX_LOSS_HISTORY:]
            self._snapshot = self._snapshot.model_copy(update={"loss_history": history})

    def note(self, code: ReasonCode, evidence: str) -> None:
        """Show a reason until `clear` is called with its code; the time of its first is kept."""
        now_s = self._clock.now_s()
        with self._lock:
            noted = self._snapshot.noted
            since_s = next((each.since_s for each in noted if each.code is code), now_s)
            others = [each for each in noted if each.code is not code]
            reason = Reason(code=code, evidence=evidence, since_s=since_s)
            self._snapshot = self._snapshot.model_copy(update={"noted": [*others, reason]})

    def clear(self, code: ReasonCode) -> None:
        """Take a reason back."""
        with self._lock:
            others = [each for each in self._snapshot.noted if each.code is not code]
            self._snapshot = self._snapshot.model_copy(update={"noted": others})

    def show(self, code: ReasonCode, evidence: str) -> None:
        """Note a reason, or clear it if the evidence is empty."""
        if evidence:
            self.note(code, evidence)
        else:
            self.clear(code)

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
