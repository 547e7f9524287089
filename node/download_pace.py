"""When a replica takes the weights of others before it averages with them, and when it stops trying."""

from __future__ import annotations

import math

from bt_p2p.protocol.limits import MAX_ROUND_LAG
from node.tui.format import format_duration

MAX_IN_A_ROW = 2
"""Downloads one after another that end behind the swarm."""
_MIN_PAUSE_ROUNDS = 10
_MIN_PAUSE_DOWNLOADS = 5
_MAX_PAUSE_S = 3600.0


def must_sync(round_index: int, newest: int | None, *, is_newcomer: bool) -> bool:
    """Whether a replica takes the weights of one that is ahead before it averages again.

    A newcomer's weights are untrained, however few rounds it is behind: they would only dilute.

    Args:
        round_index: rounds behind its own weights.
        newest: the highest round among the others; None without others.
        is_newcomer: it began from the run's initial weights and has agreed with nobody yet.
    """
    lag = 0 if newest is None else newest - round_index
    return lag > MAX_ROUND_LAG or (is_newcomer and round_index <= MAX_ROUND_LAG and lag > 0)


class DownloadPace:
    """Ends the chase of a node whose downloads take longer than the rounds of its run.

    What it has downloaded is too old to be averaged by the time it is there, and so would be the next.

    Attributes:
        problem: what to tell the user; empty while all is well.
    """

    def __init__(self, round_s: float) -> None:
        """Nothing has been downloaded yet."""
        self._round_s = round_s
        self._num_late = 0
        self._pause_s = 0.0
        self._next_at_s = -math.inf
        self.problem = ""

    def may_download(self, now_s: float) -> bool:
        """Whether another download may begin."""
        return now_s >= self._next_at_s

    def downloaded(self, *, took_s: float, lag: int, now_s: float) -> None:
        """A download has ended, so many rounds behind the newest."""
        if lag <= MAX_ROUND_LAG:
            self._num_late, self._pause_s, self.problem = 0, 0.0, ""
            return
        self._num_late += 1
        if self._num_late < MAX_IN_A_ROW:
            return
        least_s = max(_MIN_PAUSE_ROUNDS * self._round_s, _MIN_PAUSE_DOWNLOADS * took_s)
        self._pause_s = min(_MAX_PAUSE_S, max(least_s, 2 * self._pause_s))
        self._next_at_s = now_s + self._pause_s
        self.problem = (
            f"round shorter than your download: {self._round_s:g} s < {took_s:.0f} s; "
            f"{lag} rounds behind, so it trains alone and tries again in "
            f"{format_duration(self._pause_s)}; a faster link or a run with longer rounds would help"
        )
