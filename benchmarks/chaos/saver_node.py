"""`bt-node`, but its saves come after every round and its averages can be seen: both can be hit.

python -m benchmarks.chaos.saver_node join ...
"""

from __future__ import annotations

import contextlib
import functools
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from node.command_line import run_to_end

AVERAGING = "averaging"
"""This file is in the temporary folder while the node is in an average."""


def main() -> None:
    """See the module."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bt_p2p.swarm.averager import HivemindPendingAverage  # noqa: PLC0415 - takes seconds
    from node import saver  # noqa: PLC0415
    from node.cli import run  # noqa: PLC0415

    saver.SAVE_PERIOD_S = 0.0
    finish = HivemindPendingAverage.finish

    @functools.wraps(finish)
    def finish_and_show(self: HivemindPendingAverage, *args: Any, **kwargs: Any) -> Any:
        with _shown():
            return finish(self, *args, **kwargs)

    HivemindPendingAverage.finish = finish_and_show  # type: ignore[method-assign]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_to_end(run)


@contextlib.contextmanager
def _shown() -> Iterator[None]:
    path = Path(tempfile.gettempdir(), AVERAGING)
    path.touch()
    try:
        yield
    finally:
        path.unlink()


if __name__ == "__main__":
    main()
