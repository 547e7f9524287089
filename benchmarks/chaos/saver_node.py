"""`bt-node`, but it saves after every round: the moment of a save is there to be hit.

python -m benchmarks.chaos.saver_node join ...
"""

from __future__ import annotations

import sys

from node import saver
from node.cli import run


def main() -> None:
    """See the module."""
    saver.SAVE_PERIOD_S = 0.0
    sys.exit(run())


if __name__ == "__main__":
    main()
