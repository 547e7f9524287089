"""Requests and answers on the control socket: one JSON object a line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_LINE_BYTES = 4096
"""A request or an answer; the longest is far below."""
MAX_CONNECTIONS = 16
ANSWER_TIMEOUT_S = 5.0
"""A whole line comes, and an answer is taken, within this time."""
MAX_SNOOZE_S = 31 * 86_400.0

Operation = Literal["pause", "resume", "finish", "snooze", "look"]


class Request(BaseModel):
    """What the user wants of the node."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    op: Operation
    duration_s: Annotated[float, Field(gt=0, le=MAX_SNOOZE_S)] | None = None
    """Of a snooze."""


class Answer(BaseModel):
    """What holds after it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    error: str = ""
    """Why nothing was done."""
    problem: str = ""
    """What is not quite as it should be, though it was done."""
    pid: int = 0
    state: str = ""
    """As in the node's snapshot."""
    block: int | None = None
    pause_reason: str = ""
    """A `PauseReason`; empty if the node may train."""
    pause_words: str = ""
    pause_until_s: float | None = None
    is_finishing: bool = False
