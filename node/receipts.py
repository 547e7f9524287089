"""Receipts: what this computer has given to each run, kept over restarts in one small file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node.whole_file import replace_file

logger = logging.getLogger(__name__)

RECEIPTS_NAME = "receipts.json"
_MAX_FIRSTS = 100
_Count = Annotated[int, Field(ge=0, lt=2**63)]


class Receipt(BaseModel):
    """What was given to one run."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    num_starts: _Count = 0
    """How often a node has entered the run's swarm."""
    rounds: _Count = 0
    rounds_averaged: _Count = 0
    """Rounds whose average with others was adopted."""
    samples: _Count = 0
    """Sequences trained on."""
    bytes_trained: _Count = 0
    """Bytes of text trained on."""
    bytes_sent: _Count = 0
    """Weights and answers for other peers."""
    bytes_received: _Count = 0
    """Weights from other peers."""
    trained_s: Annotated[float, Field(ge=0)] = 0.0
    """Time spent in finished rounds."""
    first_at_s: float = 0.0
    """When it was first joined, in seconds since the epoch."""
    last_at_s: float = 0.0
    """When the last round was finished."""
    first_contributions_s: list[float] = []
    """Of each start, the time to the first adopted average; the last 100."""


class Receipts(BaseModel):
    """All receipts of a state folder."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    version: int = 1
    runs: dict[str, Receipt] = {}
    joins_tried: _Count = 0
    """Starts by the user; a node that replaces itself is not counted again."""
    joins_trained: _Count = 0
    """Those that came as far as training."""
    join_failures: dict[str, _Count] = {}
    """Those that ended with an error before it, by cause."""


class ReceiptBook:
    """The file of receipts. A disk that does not take it is told once; the book stays right."""

    def __init__(self, state_path: Path) -> None:
        """Read what is there; a damaged file is moved aside and told.

        Args:
            state_path: the state folder; a node must hold its lock.
        """
        self._path = state_path / RECEIPTS_NAME
        self._is_told = False
        self.receipts = self._load()

    def of(self, run_id: str) -> Receipt:
        """The receipt of a run; an empty one if nothing was given yet."""
        return self.receipts.runs.get(run_id, Receipt())

    def try_join(self) -> None:
        """The user has started a node."""
        self._keep(joins_tried=self.receipts.joins_tried + 1)

    def fail_join(self, cause: str) -> None:
        """It ended with an error before it trained."""
        failures = dict(self.receipts.join_failures)
        failures[cause] = failures.get(cause, 0) + 1
        self._keep(join_failures=failures)

    def enter(self, run_id: str, *, at_s: float) -> Receipt:
        """A node has entered the swarm of a run."""
        receipt = self.of(run_id)
        return self._put(
            run_id,
            num_starts=receipt.num_starts + 1,
            first_at_s=receipt.first_at_s or at_s,
        )

    def begin_training(self) -> None:
        """A node that the user has started trains."""
        self._keep(joins_trained=self.receipts.joins_trained + 1)

    def add(
        self,
        run_id: str,
        *,
        at_s: float,
        is_averaged: bool,
        samples: int,
        bytes_trained: int,
        bytes_sent: int,
        bytes_received: int,
        trained_s: float,
    ) -> Receipt:
        """Add a finished round; the numbers are of this round only."""
        receipt = self.of(run_id)
        return self._put(
            run_id,
            rounds=receipt.rounds + 1,
            rounds_averaged=receipt.rounds_averaged + is_averaged,
            samples=receipt.samples + samples,
            bytes_trained=receipt.bytes_trained + bytes_trained,
            bytes_sent=receipt.bytes_sent + bytes_sent,
            bytes_received=receipt.bytes_received + bytes_received,
            trained_s=receipt.trained_s + max(0.0, trained_s),
            last_at_s=at_s,
        )

    def first_contribution(self, run_id: str, after_s: float) -> Receipt:
        """The first average since a start was adopted."""
        known = self.of(run_id).first_contributions_s
        return self._put(run_id, first_contributions_s=[*known, after_s][-_MAX_FIRSTS:])

    def _put(self, run_id: str, **changes: object) -> Receipt:
        receipt = self.of(run_id).model_copy(update=changes)
        self._keep(runs={**self.receipts.runs, run_id: receipt})
        return receipt

    def _keep(self, **changes: object) -> None:
        self.receipts = self.receipts.model_copy(update=changes)
        try:
            replace_file(self._path, self.receipts.model_dump_json().encode())
            self._is_told = False
        except OSError as exc:
            if not self._is_told:
                logger.warning("cannot write %s, the old one stays: %s", self._path, exc)
            self._is_told = True

    def _load(self) -> Receipts:
        try:
            return read_receipts(self._path.parent)
        except (OSError, ValidationError) as exc:
            aside = self._path.with_name(f"{RECEIPTS_NAME}.damaged")
            logger.warning(
                "%s cannot be read and is moved to %s; receipts begin anew: %s",
                self._path,
                aside.name,
                " ".join(str(exc).split())[:200],
            )
            try:
                self._path.replace(aside)
            except OSError as failed:
                logger.warning("%s cannot be moved aside: %s", self._path, failed)
            return Receipts()


def read_receipts(state_path: Path) -> Receipts:
    """What a state folder has; empty receipts if nothing was given from here yet.

    Raises:
        OSError: the file cannot be read.
        ValidationError: it is damaged.
    """
    try:
        data = (state_path / RECEIPTS_NAME).read_bytes()
    except FileNotFoundError:
        return Receipts()
    return Receipts.model_validate_json(data)
