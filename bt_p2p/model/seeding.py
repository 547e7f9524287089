"""Text -> random generator, the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np


def seeded_generator(text: str) -> np.random.Generator:
    """A numpy Philox generator whose key is 128 bits of the sha256 of the text."""
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key))
