"""Which fault cost which round."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.chaos.faults import Injected
from benchmarks.chaos.watch import Missed


def lay_to_faults(
    lost: Sequence[Missed], faults: Sequence[Injected], *, round_s: float
) -> list[Injected | None]:
    """The fault that each lost round is laid to; None if it can be none.

    Of the faults that began before the round was given up, and that ended at most a round before it
    began: the latest on a replica of its block, or else the latest of all, since peers of all blocks
    keep each other's records.
    """

    def cause(missed: Missed) -> Injected | None:
        near = [
            fault for fault in faults if fault.at_s <= missed.at_s <= fault.until_s + 2 * round_s
        ]
        of_block = [fault for fault in near if fault.block == missed.block]
        return max(of_block or near, key=lambda fault: fault.at_s, default=None)

    return [cause(missed) for missed in lost]
