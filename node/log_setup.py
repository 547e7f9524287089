"""Where log messages go; called once by each command."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MAX_LOG_SIZE_BYTES = 5_000_000
_NUM_OLD_LOGS = 2


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
        rotating = logging.handlers.RotatingFileHandler(
            log_path, maxBytes=_MAX_LOG_SIZE_BYTES, backupCount=_NUM_OLD_LOGS, encoding="utf-8"
        )
        _add(root, rotating, logging.DEBUG)
    if log_path is None or is_debugging:
        _add(root, logging.StreamHandler(), logging.DEBUG if is_debugging else logging.WARNING)


def is_debugging() -> bool:
    """Whether --debug was given."""
    return logging.getLogger().level == logging.DEBUG


def _add(root: logging.Logger, handler: logging.Handler, level: int) -> None:
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
