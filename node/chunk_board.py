"""Which chunk of a download is asked of which donor. Pure: knows no network and no time of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

STEAL_AFTER_S = 0.5
"""A chunk is asked of a second donor after this time at the earliest."""
_STEAL_AFTER_MEANS = 2.0
"""And after this many times what a chunk has taken so far."""


class ChunkBoard:
    """Hands out chunks in order; at the end also those that another donor is slow with.

    So a slow donor costs its own chunks, and a frozen one delays nothing but the last of them.
    """

    def __init__(self, indices: Iterable[int]) -> None:
        """Hand out these chunks."""
        self._waiting = deque(indices)
        self._asked: dict[int, dict[str, float]] = {}
        self._took_s: list[float] = []

    @property
    def is_complete(self) -> bool:
        """Whether every chunk is there."""
        return not self._waiting and not self._asked

    def take(self, donor: str, now_s: float) -> int | None:
        """A chunk to ask of this donor now; None if there is none, for the moment."""
        index = self._waiting.popleft() if self._waiting else self._slowest(donor, now_s)
        if index is not None:
            self._asked.setdefault(index, {})[donor] = now_s
        return index

    def arrived(self, index: int, donor: str, now_s: float) -> bool:
        """A chunk is there; whether it is the first time."""
        donors = self._asked.pop(index, None)
        if donors is None:
            return False
        self._took_s.append(now_s - donors[donor])
        return True

    def failed(self, index: int, donor: str) -> None:
        """A donor will not give this chunk; another one may."""
        donors = self._asked.get(index)
        if donors is None or donors.pop(donor, None) is None or donors:
            return
        del self._asked[index]
        self._waiting.appendleft(index)

    def _slowest(self, donor: str, now_s: float) -> int | None:
        """The chunk that one other donor has been asked for the longest, if that is long."""
        mean_s = sum(self._took_s) / len(self._took_s) if self._took_s else 0.0
        latest_s = now_s - max(STEAL_AFTER_S, _STEAL_AFTER_MEANS * mean_s)
        asked = [
            (at_s, index)
            for index, donors in self._asked.items()
            if len(donors) == 1 and donor not in donors
            for at_s in donors.values()
            if at_s <= latest_s
        ]
        return min(asked)[1] if asked else None
