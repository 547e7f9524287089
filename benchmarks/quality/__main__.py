"""`python -m benchmarks.quality`."""

from __future__ import annotations

import sys

from benchmarks.quality.cli import run

if __name__ == "__main__":
    sys.exit(run())
