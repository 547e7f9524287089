"""`python -m benchmarks.replicas`."""

from __future__ import annotations

import sys

from benchmarks.replicas.cli import run

if __name__ == "__main__":
    sys.exit(run())
