"""Which fault cost which round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.chaos.faults import Injected
from benchmarks.chaos.watch import Missed


def lay_to_faults(
    lost: Sequence[Missed], faults: Sequence[Injected], *, round_s: float
) -> list[Injected | None]:
    """The fault that each lost round is laid to; None if it can be none.

    It can be those that began before the round was given up, and that ended at most a round before it
    began: those on a replica of its block, or else all, since peers of all blocks keep each other's
    records. Faults overlap, so rounds are laid to faults of their own as far as that is possible, and to
    late ones first. What then remains is laid to the latest: it cost two rounds beyond doubt.
    """
    near = [_near(missed, faults, round_s=round_s) for missed in lost]
    gain = np.zeros((len(lost), len(faults)))
    for number, indices in enumerate(near):
        for index in indices:
            gain[number, index] = len(faults) * len(lost) + index
    rows, columns = linear_sum_assignment(gain, maximize=True)
    own = {row: column for row, column in zip(rows, columns, strict=True) if gain[row, column]}
    chosen = [own.get(number, max(near[number], default=None)) for number in range(len(lost))]
    return [None if index is None else faults[index] for index in chosen]


def _near(missed: Missed, faults: Sequence[Injected], *, round_s: float) -> list[int]:
    """Indices of the faults, in order of their beginnings."""
    near = [
        index
        for index, fault in enumerate(faults)
        if fault.at_s <= missed.at_s <= fault.until_s + 2 * round_s
    ]
    return [index for index in near if faults[index].block == missed.block] or near
