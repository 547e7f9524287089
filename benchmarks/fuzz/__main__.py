"""`python -m benchmarks.fuzz`."""

from __future__ import annotations

import sys

from benchmarks.fuzz.cli import run

if __name__ == "__main__":
    sys.exit(run())
