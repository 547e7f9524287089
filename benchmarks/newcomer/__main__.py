"""`python -m benchmarks.newcomer`."""

from __future__ import annotations

import sys

from benchmarks.newcomer.cli import run

if __name__ == "__main__":
    sys.exit(run())
