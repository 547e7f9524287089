"""One number for each way a command can end; a signal n gives 128 + n."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
HUNG_UP = 129
INTERRUPTED = 130
TERMINATED = 143
