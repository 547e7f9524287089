"""Names of runs; imports nothing heavy."""

from __future__ import annotations

import uuid


def unique_name() -> str:
    """A run name nobody used before, so that tests do not meet in the DHT."""
    return f"t{uuid.uuid4().hex[:10]}"
