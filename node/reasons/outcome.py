"""Which code a round has that ended without an average."""

from __future__ import annotations

from bt_p2p.errors import (
    AverageRefusedError,
    AveragingError,
    GroupNotFormedError,
    OwnWeightsError,
    RoundTimeoutError,
)
from node.reasons.code import ReasonCode


def code_of(error: AveragingError) -> ReasonCode:
    """The code of a round that ended with an error."""
    match error:
        case GroupNotFormedError():
            return ReasonCode.PARTNER_LATE
        case AverageRefusedError():
            return ReasonCode.AVERAGE_REFUSED
        case OwnWeightsError():
            return ReasonCode.OWN_WEIGHTS_NOT_FINITE
        case RoundTimeoutError():
            return ReasonCode.AVERAGE_LATE
        case _:
            return ReasonCode.AVERAGE_BROKEN
