"""What transfers to a peer and back say of the link between us."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Echo:
    """One transfer to a peer and back."""

    round_trip_s: float
    size_bytes: int


def link_bytes_per_s(small: Echo, large: Echo) -> float:
    """Speed of one direction, from a short and a long transfer to the same peer and back."""
    extra_s = max(1e-6, large.round_trip_s - small.round_trip_s)
    return 2 * (large.size_bytes - small.size_bytes) / extra_s
