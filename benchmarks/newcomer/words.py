"""What a node's output says of its download."""

from __future__ import annotations

import re

_TOOK = re.compile(r"took round \d+ of block \d+ from (.*) \(.* in ([0-9.]+) s,")


def download_words(text: str) -> tuple[int, float] | None:
    """Donors that gave, and seconds; None if it has not downloaded."""
    took = _TOOK.search(text)
    return None if took is None else (len(took[1].split(" and ")), float(took[2]))
