"""`bt-node`, but it saves after every round: the moment of a save is there to be hit.

python -m benchmarks.chaos.saver_node join ...
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """See the module."""
    try:
        from node import saver  # noqa: PLC0415 - takes seconds, in which signals come
        from node.cli import run  # noqa: PLC0415

        saver.SAVE_PERIOD_S = 0.0
        code = run()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)


if __name__ == "__main__":
    main()
