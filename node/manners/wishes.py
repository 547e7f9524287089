"""What the user asked the node for, kept in its state folder so that a restart forgets nothing."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node.whole_file import replace_file

WISHES_NAME = "manners.json"

logger = logging.getLogger(__name__)


class Wishes(BaseModel):
    """Commands that hold until they are taken back or done, and the upload of the day."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    is_paused: bool = False
    snooze_until_s: float | None = None
    """Wall-clock seconds since the epoch."""
    is_finishing: bool = False
    """Leave after the round."""
    upload_day: str = ""
    """The local day on which the bytes below were sent, as 2026-12-31."""
    uploaded_bytes: int = Field(default=0, ge=0, lt=2**63)


def read_wishes(state_dir: Path) -> Wishes:
    """What is kept; nothing is asked for if the file is missing or damaged."""
    path = state_dir / WISHES_NAME
    try:
        return Wishes.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Wishes()
    except (OSError, ValidationError) as exc:
        logger.warning("%s is ignored, the node is not paused by it: %s", path, exc)
        return Wishes()


def write_wishes(state_dir: Path, wishes: Wishes) -> None:
    """Replace the file at once.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(state_dir / WISHES_NAME, wishes.model_dump_json().encode())
