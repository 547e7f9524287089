"""What a running node knows of itself, written to one small file that `status` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.receipts import Receipt
from node.whole_file import replace_file

SNAPSHOT_NAME = "node.json"

NODE_STATES = (
    "starting", "joining", "syncing", "training", "averaging", "paused", "leaving", "rebuilding",
)  # fmt: skip
MAX_LOSS_HISTORY = 60
"""Rounds whose loss is kept."""

_Count = Annotated[int, Field(ge=0, lt=2**63)]


class NodeSnapshot(BaseModel):
    """One node at one moment. Times are seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: Annotated[int, Field(ge=1, lt=2**31)]
    peer_id: str
    run_id: str
    block: _Count | None = None
    state: str = "starting"
    """One of `NODE_STATES`, or of a newer version's."""
    pause_reason: str = ""
    """Why it does not train, as a `node.manners.decision.PauseReason`; empty if it may."""
    pause_words: str = ""
    pause_until_s: float | None = None
    """When it trains again by itself; None if nobody can tell."""
    is_finishing: bool = False
    """It leaves after this round."""
    device: str = ""
    started_at_s: float = 0.0
    updated_at_s: float = 0.0
    round_index: _Count = 0
    round_ends_at_s: float | None = None
    round_s: float | None = None
    """How long a round of this run takes."""
    steps: _Count = 0
    last_step_at_s: float | None = None
    """When its last step ended, or its round began if that is later."""
    usual_step_s: float | None = None
    """Moving average of the time of a step; None before the first."""
    bytes_trained: _Count = 0
    loss: float | None = None
    loss_history: list[float] = []
    """Mean cross entropy of each finished round, oldest first, at most 60."""
    bytes_per_s: float = 0.0
    rounds_averaged: _Count = 0
    rounds_alone: _Count = 0
    rounds_failed: _Count = 0
    last_average_at_s: float | None = None
    last_partners: _Count = 0
    last_outcome: str = ""
    """In plain words: "averaged with 1 replica", "alone", "dropped: …"."""
    last_code: ReasonCode | None = None
    """Why the last round ended without an average; None if it had one, or if there was none yet."""
    rounds_since_average: _Count = 0
    """Rounds in a row, the last included, that ended without an average."""
    first_average_s: float | None = None
    """From the start to the first average with other replicas that was adopted; None before it."""
    sync: str = ""
    """In plain words, how far the download of weights is; empty while there is none."""
    sync_done_bytes: _Count = 0
    sync_size_bytes: _Count = 0
    bytes_sent: _Count = 0
    requests_served: _Count = 0
    addresses: list[str] = []
    reachable: str = ""
    """yes, no, relayed or unknown."""
    reachable_detail: str = ""
    noted: list[Reason] = []
    """What parts of the node have seen; `node.reasons.judge.reasons_of` adds what follows from the
    other fields."""
    token_expires_at_s: float | None = None
    """When the token of a closed run expires; None in an open one."""
    state_dir: str = ""
    disk_used_bytes: int | None = None
    """All files of the node; None before it has looked."""
    disk_free_bytes: int | None = None
    contribution: Receipt = Receipt()
    """Given to this run by all programs with this state folder, up to the last round."""
    rebuilds: int = 0
    """How often a broken part of it was cured by starting again."""


def write_snapshot(state_dir: Path, snapshot: NodeSnapshot) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    replace_file(state_dir / SNAPSHOT_NAME, snapshot.model_dump_json().encode())


def read_snapshot(state_dir: Path) -> NodeSnapshot | None:
    """The snapshot of a node that runs here now, else None."""
    try:
        snapshot = NodeSnapshot.model_validate_json((state_dir / SNAPSHOT_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    return snapshot if _is_running(snapshot.pid) else None


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
