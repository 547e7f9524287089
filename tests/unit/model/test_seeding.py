"""bt_p2p.model.seeding."""

from __future__ import annotations

import hashlib

import numpy as np

from bt_p2p.model.seeding import seeded_generator


def test_key_is_the_sha256_of_the_text():
    """Any other program can repeat the draw."""
    key = int.from_bytes(hashlib.sha256(b"0/1").digest()[:16], "little")
    expected = np.random.Generator(np.random.Philox(key=key)).integers(0, 2**32, 4)
    assert expected.tolist() == seeded_generator("0/1").integers(0, 2**32, 4).tolist()


def test_texts_give_unrelated_draws():
    """One character is enough."""
    first, second = (seeded_generator(text).integers(0, 2**63) for text in ("0/1", "0/2"))
    assert first != second
