"""`python -m benchmarks.attacks`."""

from __future__ import annotations

import sys

from benchmarks.attacks.cli import run

if __name__ == "__main__":
    sys.exit(run())
