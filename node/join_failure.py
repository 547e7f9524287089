"""Why a node ended before it trained: one name for each cause, counted over the years."""

from __future__ import annotations

import logging

from bt_p2p.clock import SystemClock
from bt_p2p.errors import (
    BootstrapError,
    CheckpointError,
    ConfigError,
    OutOfMemoryError,
    SwarmError,
    TrainingError,
)
from node.doctor.finding import FindingError
from node.events.event import JoinFailed, shortened
from node.events.log import EventLog
from node.receipts import ReceiptBook
from node.resources import DiskShortError, MemoryShortError
from node.state_dir import NodeLock, StateDir

logger = logging.getLogger(__name__)

_CAUSES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (BootstrapError, "no-peer-answers"),
    (SwarmError, "swarm"),
    ((OutOfMemoryError, MemoryShortError, MemoryError), "memory-short"),
    ((DiskShortError, CheckpointError, OSError), "disk-short"),
    (ConfigError, "settings"),
    (TrainingError, "training"),
)
"""The first that fits; a subclass stands before its base."""
FAULT = "fault"
"""What no error of ours explains."""


def cause_of(error: Exception) -> str:
    """The name of the cause; the doctor's code where it has found it."""
    if isinstance(error, FindingError):
        return error.code
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), FAULT)


def record_failure(state: StateDir, error: Exception) -> None:
    """Add a failed join to the receipts and the events, unless another node runs in the folder."""
    cause = cause_of(error)
    clock = SystemClock()
    try:
        with NodeLock(state):
            ReceiptBook(state.path).fail_join(cause)
            EventLog(state.events_path, clock).write(
                JoinFailed(
                    at_s=clock.now_s(),
                    cause=cause,
                    words=shortened(str(error) or type(error).__name__),
                )
            )
    except (ConfigError, OSError) as exc:
        logger.info("the failed join is not recorded: %s", exc)
