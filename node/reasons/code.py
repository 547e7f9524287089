"""Codes of reasons. They are for programs and for search: they stay the same when texts change."""

from __future__ import annotations

import enum


class Severity(enum.StrEnum):
    """How much a reason matters to the owner of a node."""

    NOTE = "note"
    """As it should be, or it passes by itself."""
    WARNING = "warning"
    """The node does less than it could; its owner should look."""
    ERROR = "error"
    """The node does nothing useful, or harm, until its owner acts."""


class ReasonCode(enum.StrEnum):
    """One for each state in which a node is idle, slow, alone or refused; in alphabetical order."""

    ALONE_NO_PARTNER = "alone-no-partner"
    AVERAGE_BROKEN = "average-broken"
    AVERAGE_LATE = "average-late"
    AVERAGE_REFUSED = "average-refused"
    BOOTSTRAP_UNREACHABLE = "bootstrap-unreachable"
    CHOOSING_BLOCK = "choosing-block"
    CLOCK_OFF = "clock-off"
    COPY_NOT_FRESH = "copy-not-fresh"
    DISK_FULL = "disk-full"
    DISK_LOW = "disk-low"
    DISK_UNREADABLE = "disk-unreadable"
    FIRST_ROUND = "first-round"
    ISOLATED = "isolated"
    LEAVING = "leaving"
    LINK_TOO_SLOW = "link-too-slow"
    MEMORY_OVER_CAP = "memory-over-cap"
    NO_AVERAGE_LATELY = "no-average-lately"
    NOT_REACHABLE = "not-reachable"
    OUT_OF_MEMORY_BATCH_HALVED = "out-of-memory-batch-halved"
    OWN_WEIGHTS_NOT_FINITE = "own-weights-not-finite"
    PARTNER_LATE = "partner-late"
    PARTNER_REFUSED = "partner-refused"
    PAUSED = "paused"
    REBUILDING = "rebuilding"
    REBUILT = "rebuilt"
    RELAYED_ONLY = "relayed-only"
    SAME_KEY_ELSEWHERE = "same-key-elsewhere"
    SILENT = "silent"
    STALLED_NO_STEP = "stalled-no-step"
    STARTING = "starting"
    SWARM_NO_ANSWER = "swarm-no-answer"
    TOKEN_EXPIRED = "token-expired"  # noqa: S105 - a code
    TOKEN_EXPIRES_SOON = "token-expires-soon"  # noqa: S105 - a code
    TRAINING_DIVERGED = "training-diverged"
    UPSTREAM_NOT_FRESH = "upstream-not-fresh"
    WAITING_FOR_WEIGHTS = "waiting-for-weights"
    WEIGHTS_NOT_GIVEN = "weights-not-given"
