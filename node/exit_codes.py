"""One number for each way a command can end."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
TERMINATED = 143
