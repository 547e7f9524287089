"""bt_p2p.model.kv_cache: a block that goes on from what it saw."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.model.block import initial_block
from bt_p2p.model.kv_cache import BlockCache, cache_size_bytes
from bt_p2p.model.packing import Segment
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec, RunManifest

CPU = torch.device("cpu")
SPEC = ModelSpec(d_model=16, num_heads=2, num_blocks=2, layers_per_block=3, context=16)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


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


def inputs(block, num_tokens=16):
    generator = torch.Generator().manual_seed(1)
    tokens_NT = torch.randint(0, 257, (2, num_tokens), generator=generator)
    if block.upstream is None:
        return tokens_NT, None
    return tokens_NT, torch.randn(2, num_tokens, 16, generator=generator)


def extended(block, tokens_NT, upstream_NTD, cache):
    """What the block makes of one segment."""
    segment = Segment(tokens_NT=tokens_NT, upstream_NTD=upstream_NTD, cache=cache)
    return block.forward_segments([segment])[0]


@pytest.mark.parametrize("cuts", [[16], [1] * 16, [5, 1, 1, 9], [10, 6], [1, 15]], ids=str)
def test_pieces_give_what_the_whole_gives(block, cuts):
    """However the tokens are cut, logits and features are those of one pass."""
    tokens_NT, features_NTD = inputs(block)
    cache = BlockCache(SPEC, 2, CPU)
    with torch.inference_mode():
        whole = block(tokens_NT, features_NTD)
        start = 0
        for size in cuts:
            piece = slice(start, start + size)
            given = None if features_NTD is None else features_NTD[:, piece]
            output = extended(block, tokens_NT[:, piece], given, cache)
            torch.testing.assert_close(whole.logits_BTV[:, piece], output.logits_BTV, **CLOSE)
            torch.testing.assert_close(whole.features_BTD[:, piece], output.features_BTD, **CLOSE)
            start += size
            assert start == cache.num_tokens


def test_what_is_cut_off_is_forgotten(block):
    """Other tokens after a cut give what they give without the first attempt."""
    tokens_NT, features_NTD = inputs(block)
    other_NT = tokens_NT.clone()
    other_NT[:, 6:] = (other_NT[:, 6:] + 100) % 256
    cache = BlockCache(SPEC, 2, CPU)
    with torch.inference_mode():
        extended(block, tokens_NT, features_NTD, cache)
        cache.truncate(6)
        given = None if features_NTD is None else features_NTD[:, 6:]
        found = extended(block, other_NT[:, 6:], given, cache)
        expected = block(other_NT, features_NTD)
    torch.testing.assert_close(expected.logits_BTV[:, 6:], found.logits_BTV, **CLOSE)


def test_more_than_the_context_is_refused_and_keeps_the_cache(block):
    """Past and new tokens count together."""
    tokens_NT, features_NTD = inputs(block)
    cache = BlockCache(SPEC, 2, CPU)
    with torch.inference_mode():
        extended(block, tokens_NT, features_NTD, cache)
        with pytest.raises(ValueError, match="17 tokens do not fit"):
            extended(block, tokens_NT[:, :1], None, cache)
    assert 16 == cache.num_tokens


@pytest.mark.parametrize("num_tokens", [-1, 4])
def test_a_cache_cannot_be_cut_to_more_than_it_holds(num_tokens):
    """Nor to less than nothing."""
    cache = BlockCache(SPEC, 1, CPU)
    cache.num_tokens = 3
    with pytest.raises(ValueError, match="holds 3 tokens"):
        cache.truncate(num_tokens)


def test_size_is_keys_and_values_of_all_layers():
    """Float32 at full context: 2 sequences, 3 layers, 16 positions, width 16."""
    assert (
        2 * 4 * 2 * 3 * 16 * 16 == cache_size_bytes(SPEC, 2) == BlockCache(SPEC, 2, CPU).size_bytes
    )
