"""Where log messages go; called once by each command."""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MAX_LOG_SIZE_BYTES = 5_000_000
_NUM_OLD_LOGS = 2
_NUM_HELD_BACK = 50


class _LogFile(logging.handlers.RotatingFileHandler):
    """A rotating file that outlives a full disk: failed writes are counted, not shown one by one."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, maxBytes=_MAX_LOG_SIZE_BYTES, backupCount=_NUM_OLD_LOGS, encoding="utf-8"
        )
        self._num_failed = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; the first one that is written again says how many were not."""
        num_failed = self._num_failed
        super().emit(record)
        if num_failed and self._num_failed == num_failed:
            self._num_failed = 0
            super().emit(
                logging.makeLogRecord(
                    {
                        "name": __name__,
                        "levelno": logging.WARNING,
                        "levelname": "WARNING",
                        "msg": "the disk did not take %d lines of this log",
                        "args": (num_failed,),
                    }
                )
            )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Count a line that the disk did not take; show anything else as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)
            return
        self._num_failed += 1
        if self.stream is not None and self.stream.closed:  # in the middle of a rotation
            self.stream = None  # opened again by the next line


def set_up_logging(*, is_debugging: bool, log_path: Path | None = None) -> None:
    """Log to a rotating file, or warnings to stderr where there is none.

    Args:
        is_debugging: log everything, also to stderr.
        log_path: of a running node.
    """
    root = logging.getLogger()
    root.setLevel(logging.DEBUG if is_debugging else logging.INFO)
    for handler in list(root.handlers):
        root.removeHandler(handler)
    if log_path is not None:
        _add(root, _LogFile(log_path), logging.DEBUG)
    if log_path is None or is_debugging:
        _add(root, logging.StreamHandler(), logging.DEBUG if is_debugging else logging.WARNING)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Keep what would be logged to stderr until the end of the block: the terminal is in use.

    Of many lines only the last ones are kept.
    """
    lines = _LastLines()
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if type(handler) is logging.StreamHandler and not handler.stream.closed
    ]
    before = [handler.setStream(lines) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)
                with contextlib.suppress(OSError):  # the terminal is gone
                    stream.write("".join(lines.kept))
                    stream.flush()


class _LastLines(io.StringIO):
    """Keeps the last texts that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: deque[str] = deque(maxlen=_NUM_HELD_BACK)

    def write(self, text: str) -> int:
        self.kept.append(text)
        return len(text)


def is_debugging() -> bool:
    """Whether --debug was given."""
    return logging.getLogger().level == logging.DEBUG


def _add(root: logging.Logger, handler: logging.Handler, level: int) -> None:
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
