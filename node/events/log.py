"""Events as lines of a file in the state folder. Whatever the disk does, the node goes on."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from bt_p2p.clock import Clock
from node.events.event import Event, LinesLost, Started

logger = logging.getLogger(__name__)

MAX_SIZE_BYTES = 5_000_000
NUM_OLD_FILES = 2


class EventLog:
    """Appends to one file, which is moved aside when it is large; may be used from any thread."""

    def __init__(self, path: Path, clock: Clock, *, max_size_bytes: int = MAX_SIZE_BYTES) -> None:
        """Nothing is written yet.

        Args:
            path: of the newest file; older ones are beside it, with .1 and .2 at the end.
            clock: dates what the log says of itself.
            max_size_bytes: of one file.
        """
        self._path = path
        self._clock = clock
        self._max_size_bytes = max_size_bytes
        self._lock = threading.Lock()
        self._num_lost = 0
        self._started: Started | None = None

    def write(self, event: Event) -> None:
        """Add a line; one that the disk does not take is counted, and told by a later line."""
        with self._lock:
            try:
                self._write(event)
            except OSError as exc:
                if not self._num_lost:
                    logger.warning("the disk does not take events in %s: %s", self._path, exc)
                self._num_lost += 1
            if isinstance(event, Started):
                self._started = event

    def _write(self, event: Event) -> None:
        if self._is_full():
            self._rotate()
        lines: list[Event] = [event]
        if self._num_lost:
            lines.insert(0, LinesLost(at_s=self._clock.now_s(), num=self._num_lost))
        data = b"".join(line.model_dump_json().encode() + b"\n" for line in lines)
        self._append(data)
        self._num_lost = 0

    def _append(self, data: bytes) -> None:
        with self._path.open("ab", buffering=0) as file:
            if self._ends_torn():
                data = b"\n" + data
            if file.write(data) != len(data):
                raise OSError(f"only a part of a line fits into {self._path}")

    def _ends_torn(self) -> bool:
        """A program that was killed, or a full disk, may have left half a line."""
        with self._path.open("rb") as file:
            size_bytes = file.seek(0, 2)
            if not size_bytes:
                return False
            file.seek(size_bytes - 1)
            return file.read(1) != b"\n"

    def _is_full(self) -> bool:
        try:
            return self._path.stat().st_size >= self._max_size_bytes
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        for number in range(NUM_OLD_FILES, 0, -1):
            newer = old_path(self._path, number - 1)
            if newer.exists():
                newer.replace(old_path(self._path, number))
        if self._started is not None:  # each file can be read without the one before it
            repeated = self._started.model_copy(
                update={"is_repeated": True, "at_s": self._clock.now_s()}
            )
            self._append(repeated.model_dump_json().encode() + b"\n")


def old_path(path: Path, number: int) -> Path:
    """The file that has been moved aside `number` times; 0 is the newest."""
    return path.with_name(f"{path.name}.{number}") if number else path
