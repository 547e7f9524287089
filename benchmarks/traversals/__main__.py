"""`python -m benchmarks.traversals`."""

from __future__ import annotations

import sys

from benchmarks.traversals.cli import run

if __name__ == "__main__":
    sys.exit(run())
