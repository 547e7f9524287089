"""When rounds end.

Rounds end at multiples of `round_s` in DHT time, the same moments for every replica. A slow replica
does fewer local steps, counts less by its samples, and holds nobody up; a fast one never runs ahead.
"""

from __future__ import annotations

import math

from bt_p2p.protocol.limits import (
    LATE_PARTNER_S,
    LOOK_BEFORE_SEARCH_S,
    MATCHMAKING_S,
    MIN_TRANSFER_BYTES_PER_S,
)

_HEAD_START_S = 0.5
"""Replicas start looking this much earlier than needed, so that none declares itself too late."""

_MIN_DELAY_S = 3.0
"""Of an exchange, beside the time for its bytes: a late group and a busy machine need as much."""
_MAX_DELAY_S = 5.0


def next_round_end_s(now_s: float, round_s: float) -> float:
    """The next moment at which replicas average, at least half a round away.

    The half keeps a node that was late, or has just joined, from ending a round it did not train in.
    """
    number = now_s // round_s + 1
    if number * round_s - now_s < round_s / 2:
        number += 1
    return number * round_s  # one product, so that all replicas get the same float


def matchmaking_s(round_s: float) -> float:
    """How long replicas look for each other before a round ends."""
    return min(MATCHMAKING_S, round_s / 4)


def late_partner_s(round_s: float) -> float:
    """How long a replica waits for a group after a round has ended, before it goes on alone.

    Who has waited in vain must still be in time for the next end, at least half a round away: two
    replicas that each miss every other end would take turns, and never meet.
    """
    return min(LATE_PARTNER_S, round_s / 3)


def matchmaking_starts_s(round_end_s: float, round_s: float) -> float:
    """When to start looking for the group, so that it is complete at the end of the round."""
    return round_end_s - matchmaking_s(round_s) - _HEAD_START_S


def look_starts_s(round_end_s: float, round_s: float) -> float:
    """When to see who is there, before the search: never in the first third of a round."""
    return matchmaking_starts_s(round_end_s, round_s) - min(LOOK_BEFORE_SEARCH_S, round_s / 3)


def average_timeout_s(size_bytes: int, num_replicas: int, round_s: float) -> float:
    """Deadline for exchanging weights of a size with a group, on the slowest link we allow for.

    Every member sends and receives about twice its weights, whatever the size of the group. What is
    allowed for delays is so short that an average which fails does not cost the next round as well,
    if rounds last for 10 s at least.
    """
    transfer_s = 2 * min(num_replicas, 2) * size_bytes / MIN_TRANSFER_BYTES_PER_S
    return min(_MAX_DELAY_S, max(_MIN_DELAY_S, 0.3 * round_s)) + transfer_s


def slowest_upload_bytes_per_s(size_bytes: int, round_s: float) -> int:
    """Who sends more slowly than this cannot bring weights of a size to a large group in time.

    Other traffic shares the line, so half of the deadline has to do.
    """
    return math.ceil(2 * 2 * size_bytes / average_timeout_s(size_bytes, 2, round_s))


def payload_size_bytes(size_bytes: int, group_size: int) -> int:
    """Bytes of weights each member sends in one all-reduce, protocol overhead left out.

    Every member reduces 1/n of the vector: it sends the other shares to their reducers, and its
    own averaged share to everybody else.
    """
    return 2 * size_bytes * (group_size - 1) // group_size
