"""bt_p2p.model.packing: many sequences in one pass give what each gives alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bt_p2p.model.block import initial_block
from bt_p2p.model.kv_cache import BlockCache
from bt_p2p.model.packing import Packing, Segment
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec, RunManifest

CPU = torch.device("cpu")
SPEC = ModelSpec(d_model=16, num_heads=2, num_blocks=2, layers_per_block=3, context=16)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SHAPES = [(1, 1, 7), (2, 5, 0), (1, 9, None), (3, 1, 4), (1, 4, 12), (1, 16, None), (2, 1, None)]
"""Sequences, new tokens and past of each segment; None keeps no cache."""


@pytest.fixture(params=["plain", "cascade"])
def block(request):
    """All weights moved, so that every part matters."""
    objective = ObjectiveSpec(name=request.param, sweep_max_bytes=4)
    found = initial_block(RunManifest(model=SPEC, objective=objective), 1).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return found


def make_segments(block) -> list[Segment]:
    """The same each time, with caches filled anew; every other one has features."""
    generator = torch.Generator().manual_seed(1)
    segments = []
    for index, (num_sequences, num_tokens, past) in enumerate(SHAPES):
        cache = None if past is None else BlockCache(SPEC, num_sequences, CPU)
        tokens_NT = torch.randint(0, 257, (num_sequences, num_tokens), generator=generator)
        if past:
            before_NT = torch.randint(0, 257, (num_sequences, past), generator=generator)
            block.forward_segments([Segment(tokens_NT=before_NT, cache=cache)])
        upstream_NTD = None
        if block.upstream is not None and index % 2:
            upstream_NTD = torch.randn(num_sequences, num_tokens, 16, generator=generator)
        segments.append(Segment(tokens_NT=tokens_NT, upstream_NTD=upstream_NTD, cache=cache))
    return segments


def test_a_pass_over_all_gives_what_each_gives_alone(block):
    """Whatever the lengths, pasts, numbers of sequences and features."""
    with torch.inference_mode():
        packed, alone = make_segments(block), make_segments(block)
        found = block.forward_segments(packed)
        for index, segment in enumerate(alone):
            [expected] = block.forward_segments([segment])
            output = found[index]
            torch.testing.assert_close(expected.logits_BTV, output.logits_BTV, **CLOSE)
            torch.testing.assert_close(expected.features_BTD, output.features_BTD, **CLOSE)
    assert [segment.past for segment in alone] == [segment.past for segment in packed]


def test_the_caches_go_on_as_if_each_had_been_alone(block):
    """The next token of each sequence says what it saw."""
    with torch.inference_mode():
        packed, alone = make_segments(block), make_segments(block)
        block.forward_segments(packed)
        for mine, theirs in zip(packed, alone, strict=True):
            block.forward_segments([theirs])
            if mine.cache is None or mine.past == SPEC.context:
                continue
            next_NT = torch.full((mine.cache.num_sequences, 1), 65)
            [found], [expected] = (
                block.forward_segments([Segment(tokens_NT=next_NT, cache=each.cache)])
                for each in (mine, theirs)
            )
            torch.testing.assert_close(expected.logits_BTV, found.logits_BTV, **CLOSE)


def test_a_segment_without_a_past_is_an_ordinary_batch(block):
    """The two ways into a block agree."""
    tokens_NT = make_segments(block)[1].tokens_NT
    with torch.inference_mode():
        expected = block(tokens_NT)
        [found] = block.forward_segments([Segment(tokens_NT=tokens_NT)])
    torch.testing.assert_close(expected.logits_BTV, found.logits_BTV, **CLOSE)


def test_one_segment_over_the_context_extends_no_cache(block):
    """It is refused before anything is computed."""
    segments = make_segments(block)
    pasts = [segment.past for segment in segments]
    too_long = replace(segments[-1], tokens_NT=torch.zeros(1, 17, dtype=torch.int64))
    with torch.inference_mode(), pytest.raises(ValueError, match="17 tokens do not fit"):
        block.forward_segments([*segments, too_long])
    assert pasts == [segment.past for segment in segments]


def test_a_row_is_split_into_what_it_was_packed_from():
    """Sequence after sequence, segment after segment."""
    generator = torch.Generator().manual_seed(2)
    segments = [
        Segment(tokens_NT=torch.randint(0, 257, shape, generator=generator))
        for shape in [(2, 3), (1, 1), (4, 2)]
    ]
    packing = Packing(segments)
    parts = packing.split(packing.tokens_1S.unsqueeze(-1))
    assert all(
        torch.equal(segment.tokens_NT, part.squeeze(-1))
        for segment, part in zip(segments, parts, strict=True)
    )
    assert [0, 1, 2, 0, 1, 2, 0, 0, 1, 0, 1, 0, 1, 0, 1] == packing.positions_S.tolist()
