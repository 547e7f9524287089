"""`bt-node`, but it saves after every round: the moment of a save is there to be hit.

python -m benchmarks.chaos.saver_node join ...
"""

from __future__ import annotations

from collections.abc import Callable

from node.command_line import run_to_end


def main() -> None:
    """See the module."""
    run_to_end(_load)


def _load() -> Callable[[], int]:
    from node import saver  # noqa: PLC0415 - takes seconds, in which signals come
    from node.cli import run  # noqa: PLC0415

    saver.SAVE_PERIOD_S = 0.0
    return run


if __name__ == "__main__":
    main()
