"""bt_p2p.chain.drafter: guesses."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.chain.drafter import BlockDrafter, RepeatDrafter
from bt_p2p.chain.sampling import Sampling, sample_bytes
from bt_p2p.chain.window import window_start
from bt_p2p.model.block import initial_block
from bt_p2p.testing.tiny import tiny_manifest

MANIFEST = tiny_manifest()
CONTEXT = MANIFEST.model.context


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"the cat sat on the cat s", b"at o"),
        (b"abcabcabc", b"abc"),
        (b"no repetition", b""),
        (b"abxab", b""),  # two bytes may well be chance
        (b"x", b""),
        (b"aaaa", b"a"),
    ],
)
def test_repetition_guesses_what_followed_last_time(text, expected):
    """After the longest end of the text that occurred before."""
    assert expected == RepeatDrafter().draft(text, 4, Sampling(), 0)


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), Sampling(temperature=1.0)], ids=str)
def test_a_block_guesses_what_it_would_generate_alone(sampling):
    """Literally: one byte after another over the whole window, with the noise of its position."""
    block = initial_block(MANIFEST, 0).eval()
    drafter = BlockDrafter(block)
    for text in (b"the", b"the cat", b"the dog sat on it", b"quite another text of no relation"):
        literal = bytearray(text)
        start = window_start(len(text), CONTEXT)
        for _ in range(min(5, start + CONTEXT + 1 - len(text))):
            with torch.inference_mode():
                logits = block(torch.tensor([list(literal[start:])])).logits_BTV[0, -1:]
            literal += bytes(
                sample_bytes(torch.log_softmax(logits, -1), sampling, seed=4, position=len(literal))
            )
        assert literal[len(text) :] == drafter.draft(text, 5, sampling, 4)
