"""`python -m benchmarks.chain`."""

from __future__ import annotations

import sys

from benchmarks.chain.cli import run

if __name__ == "__main__":
    sys.exit(run())
