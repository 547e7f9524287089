"""How far a download is: written by the loop that downloads, read by the thread that tells the user."""

from __future__ import annotations

from bt_p2p.clock import Clock
from node.tui.format import format_bytes, format_duration, format_rate, plural


class DownloadMeter:
    """Bytes, speed and what is left of one download.

    Attributes:
        size_bytes: of the whole; 0 before it is known.
        kept_bytes: there from an earlier attempt.
        fetched_bytes: come since the start.
        num_donors: who give chunks.
        waits_for: why nothing comes, in words; empty while something does.
    """

    def __init__(self, clock: Clock) -> None:
        """Nothing has come yet."""
        self._clock = clock
        self._started_at_s = clock.monotonic_s()
        self.size_bytes = 0
        self.kept_bytes = 0
        self.fetched_bytes = 0
        self.num_donors = 0
        self.waits_for = ""

    def begin(self, *, size_bytes: int, kept_bytes: int, num_donors: int) -> None:
        """Chunks of a snapshot are asked for from now on."""
        self._started_at_s = self._clock.monotonic_s()
        self.size_bytes, self.kept_bytes, self.fetched_bytes = size_bytes, kept_bytes, 0
        self.num_donors = num_donors
        self.waits_for = ""

    @property
    def done_bytes(self) -> int:
        """What is there."""
        return self.kept_bytes + self.fetched_bytes

    @property
    def took_s(self) -> float:
        """Time since the first chunk was asked for."""
        return self._clock.monotonic_s() - self._started_at_s

    @property
    def bytes_per_s(self) -> float:
        """Mean speed."""
        return self.fetched_bytes / max(1e-6, self.took_s)

    @property
    def left_s(self) -> float:
        """Time to the end at this speed; infinite while nothing has come."""
        if not self.fetched_bytes:
            return float("inf")
        return (self.size_bytes - self.done_bytes) / self.bytes_per_s

    def words(self) -> str:
        """One line for the user."""
        if self.waits_for:
            return f"waiting: {self.waits_for}"
        if not self.size_bytes:
            return "asking replicas for their weights"
        return (
            f"{format_bytes(self.done_bytes)} of {format_bytes(self.size_bytes)} at "
            f"{format_rate(self.bytes_per_s)} from {plural(self.num_donors, 'replica')}, "
            f"{format_duration(self.left_s)} left"
        )

    def summary(self) -> str:
        """One line for the user at the end."""
        kept = f", {format_bytes(self.kept_bytes)} kept from before" if self.kept_bytes else ""
        return (
            f"{format_bytes(self.fetched_bytes)} in {self.took_s:.1f} s, "
            f"{format_rate(self.bytes_per_s)}{kept}"
        )
