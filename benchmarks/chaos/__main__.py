"""`python -m benchmarks.chaos`."""

from __future__ import annotations

import sys

from benchmarks.chaos.cli import run

if __name__ == "__main__":
    sys.exit(run())
