"""Event logs, read again: what cannot be read is skipped and counted, never guessed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from bt_p2p.errors import ConfigError
from node.events.event import EVENTS, KINDS, VERSION, Event
from node.events.log import NUM_OLD_FILES, old_path

_MAX_LINE_BYTES = 1 << 20
_MAX_FILE_BYTES = 100_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The events of a file, or of a node's whole log."""

    events: list[Event]
    """In the order in which they were written."""
    skipped: dict[str, int] = field(default_factory=dict)
    """What was left out, in words -> how many lines."""

    def skipped_words(self) -> str:
        """One line for the user; empty if nothing was skipped."""
        return "; ".join(f"{what}: {num}" for what, num in self.skipped.items())


def read_history(path: Path) -> History:
    """Read one file.

    Raises:
        ConfigError: it cannot be read, or is no event log.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(
                f"{path} is larger than {_MAX_FILE_BYTES} bytes, which no event log is; name the "
                f"events.jsonl of a state folder"
            )
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read ({exc.strerror}); name the events.jsonl of a state folder"
        ) from exc
    history = _parse(data)
    if not history.events and not any(word.startswith("unknown") for word in history.skipped):
        raise ConfigError(
            f"{path} is no event log: none of its lines is an event; name the events.jsonl of a "
            f"state folder"
        )
    return history


def read_log(path: Path) -> History:
    """Read a node's log with the files that were moved aside, oldest first; empty if there is none.

    Raises:
        ConfigError: a file cannot be read, or is no event log.
    """
    events: list[Event] = []
    skipped: Counter[str] = Counter()
    for number in range(NUM_OLD_FILES, -1, -1):
        each = old_path(path, number)
        if each.exists() and each.stat().st_size:
            history = read_history(each)
            events += history.events
            skipped.update(history.skipped)
    return History(events=events, skipped=dict(skipped))


def _parse(data: bytes) -> History:
    events: list[Event] = []
    skipped: Counter[str] = Counter()
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        found = _parse_line(line)
        if not isinstance(found, str):
            events.append(found)
        elif found == _DAMAGED and number == len(lines) - 1:
            skipped["torn last line"] += 1
        else:
            skipped[found] += 1
    return History(events=events, skipped=dict(skipped))


_DAMAGED = "damaged line"


def _parse_line(line: bytes) -> Event | str:
    """An event, or why it is none, in words."""
    if len(line) > _MAX_LINE_BYTES:
        return _DAMAGED
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return _DAMAGED
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str):
        return _DAMAGED
    if fields.get("version") != VERSION:
        return f"unknown version {str(fields.get('version'))[:20]!r}"
    if fields["kind"] not in KINDS:
        return f"unknown kind {fields['kind'][:40]!r}"
    try:
        return EVENTS.validate_python(fields)
    except ValidationError:
        return _DAMAGED
