"""A token bucket: how long to wait before so many bytes may leave.

It is kept as one number, the moment at which all that was let through is paid for. So several processes
can share it, and a test moves its clock.
"""

from __future__ import annotations

from dataclasses import dataclass

BURST_S = 0.25
"""An idle bucket holds what flows in this time, so that small answers do not wait."""
_PIECES_PER_S = 20
_MIN_PIECE_BYTES = 1024
_MAX_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBucket:
    """A rate; in any time of t seconds at most rate x (t + `BURST_S`) bytes and one piece get through."""

    bytes_per_s: float

    @property
    def piece_bytes(self) -> int:
        """Larger writes are cut into pieces of this size, so that they flow evenly."""
        wanted = int(self.bytes_per_s / _PIECES_PER_S)
        return max(_MIN_PIECE_BYTES, min(_MAX_PIECE_BYTES, wanted))

    def take(self, paid_until_s: float, size_bytes: int, *, now_s: float) -> tuple[float, float]:
        """Let a piece through.

        Args:
            paid_until_s: what the last call returned; minus infinity at first.
            size_bytes: of the piece.
            now_s: on a clock that never goes back.

        Returns:
            The new `paid_until_s`, and the seconds to wait before the piece leaves.
        """
        start_s = max(paid_until_s, now_s - BURST_S)
        end_s = start_s + size_bytes / self.bytes_per_s
        return end_s, max(0.0, end_s - now_s)
