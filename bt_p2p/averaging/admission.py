"""Whether the average of a round is adopted. Pure decisions; the caller keeps its own weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bt_p2p.averaging.averager import GroupAverage
from bt_p2p.protocol.limits import MAX_ROUND_LAG


def reason_to_refuse(
    average: GroupAverage, own_weights: Mapping[str, Tensor], *, round_index: int
) -> str:
    """Why an average must not be adopted; empty when it may be.

    Args:
        average: the result of the round.
        own_weights: what this replica brought.
        round_index: rounds its weights had been through.
    """
    for peer_id, report in average.partners.items():
        lag = report.round_index - round_index
        if abs(lag) > MAX_ROUND_LAG:
            return (
                f"replica …{peer_id[-6:]} is {abs(lag)} rounds "
                f"{'ahead' if lag > 0 else 'behind'}, over the limit of {MAX_ROUND_LAG}"
            )
    if average.weights.keys() != own_weights.keys():
        return "the average has other tensors than this block"
    for name, own in own_weights.items():
        averaged = average.weights[name]
        if averaged.shape != own.shape:
            return f"tensor {name} of the average has shape {tuple(averaged.shape)}"
        if not bool(torch.isfinite(averaged).all()):
            return f"tensor {name} of the average is not finite"
    return ""


def is_finite(weights: Mapping[str, Tensor]) -> bool:
    """Whether these weights may be shown to others at all."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def round_after(average: GroupAverage, *, round_index: int) -> int:
    """Rounds the adopted weights have been through: one more than the newest member's."""
    rounds = [report.round_index for report in average.partners.values()]
    return max([round_index, *rounds]) + 1
