"""bt_p2p.model.block."""

from __future__ import annotations

import math

import pytest
import torch

from bt_p2p.errors import ConfigError
from bt_p2p.model.block import initial_block
from bt_p2p.model.wire import tensors_digest
from bt_p2p.protocol.manifest import MASK_TOKEN, RunManifest

GOLDEN_PLAIN = "c19e87f203ea4b732f7440e5145d83bd381b6838b52e942e9dfc978c97d80219"
GOLDEN_DIFFUSION = "2e66127d1ebce62a7636523aa6552581a9675f6d97fb9ce4a56f5389b004a338"


def digest_of(manifest: RunManifest, block_index: int) -> str:
    return tensors_digest(dict(initial_block(manifest, block_index).named_parameters()))


def test_initial_weights_are_the_golden_ones(plain_manifest, diffusion_manifest):
    """Every machine and every release makes the same block 1: peers join without a download."""
    assert GOLDEN_PLAIN == digest_of(plain_manifest, 1)
    assert GOLDEN_DIFFUSION == digest_of(diffusion_manifest, 1)


def test_initial_weights_ignore_global_random_state(plain_manifest):
    """Only the manifest's seed counts."""
    torch.manual_seed(1)
    first = digest_of(plain_manifest, 0)
    torch.manual_seed(2)
    assert first == digest_of(plain_manifest, 0)


def test_blocks_and_seeds_differ(plain_manifest):
    """No two blocks of a run start alike, nor the same block of two seeds."""
    other = plain_manifest.model_copy(update={"seed": 1})
    digests = [digest_of(plain_manifest, index) for index in range(3)] + [digest_of(other, 0)]
    assert 4 == len(set(digests))


def test_initial_scales_are_as_stated(diffusion_manifest):
    """Std 0.02, residual outputs over sqrt(2 layers), norms one, last denoiser matrix zero."""
    for name, parameter in initial_block(diffusion_manifest, 0).named_parameters():
        if parameter.ndim == 1:
            assert bool((parameter == 1).all()), name
        elif name == "denoiser.out.weight":
            assert bool((parameter == 0).all()), name
        else:
            is_residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
            expected = 0.02 / math.sqrt(2 * 2) if is_residual else 0.02
            assert expected == pytest.approx(parameter.std().item(), rel=0.15), name


def test_block_index_outside_the_run_is_refused(plain_manifest):
    """The message names the blocks that exist."""
    with pytest.raises(ConfigError, match="no block 3; choose from 0 to 2"):
        initial_block(plain_manifest, 3)


def test_later_bytes_do_not_change_earlier_logits(plain_manifest):
    """Position i sees bytes 0..i only, for every i."""
    block = initial_block(plain_manifest, 0)
    generator = torch.Generator().manual_seed(0)
    tokens_BT = torch.randint(0, 256, (1, 16), generator=generator)
    with torch.inference_mode():
        base_BTV = block(tokens_BT).logits_BTV
        for changed in range(1, 16):
            other_BT = tokens_BT.clone()
            other_BT[0, changed:] = (other_BT[0, changed:] + 1) % 256
            other_BTV = block(other_BT).logits_BTV
            torch.testing.assert_close(
                base_BTV[:, :changed], other_BTV[:, :changed], rtol=0, atol=1e-6
            )
            assert not torch.equal(base_BTV[:, changed], other_BTV[:, changed])


def test_short_sequences_agree_with_long_ones(plain_manifest):
    """The first t outputs do not depend on how many follow."""
    block = initial_block(plain_manifest, 0)
    tokens_BT = torch.arange(16).view(1, 16)
    with torch.inference_mode():
        torch.testing.assert_close(
            block(tokens_BT).logits_BTV[:, :5], block(tokens_BT[:, :5]).logits_BTV
        )


def test_the_mask_token_is_an_input_like_any_other(plain_manifest):
    """Row 256 of the embedding; the logits have no such column."""
    block = initial_block(plain_manifest, 0)
    output = block(torch.full((2, 3), MASK_TOKEN))
    assert (2, 3, 256) == tuple(output.logits_BTV.shape)
    assert (2, 3, 16) == tuple(output.features_BTD.shape)


def test_more_tokens_than_the_context_are_refused(plain_manifest):
    """Both numbers are in the message."""
    with pytest.raises(ValueError, match="17 tokens do not fit in the context of 16"):
        initial_block(plain_manifest, 0)(torch.zeros(1, 17, dtype=torch.int64))


def test_logits_are_float32_under_bf16_autocast(plain_manifest):
    """And close to those without autocast."""
    block = initial_block(plain_manifest, 0)
    tokens_BT = torch.arange(16).view(1, 16)
    with torch.inference_mode():
        exact_BTV = block(tokens_BT).logits_BTV
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough_BTV = block(tokens_BT).logits_BTV
    assert torch.float32 == rough_BTV.dtype
    torch.testing.assert_close(exact_BTV, rough_BTV, rtol=0.05, atol=0.01)


def test_denoiser_is_silent_at_first_and_only_where_built(plain_manifest, diffusion_manifest):
    """Zeros for initial weights; a plain block says how to get one."""
    inputs = torch.ones(1, 2, 16), torch.ones(1, 2, 8), torch.ones(1, 2)
    assert 0 == initial_block(diffusion_manifest, 0).denoise(*inputs).abs().max().item()
    with pytest.raises(ValueError, match="objective 'diffusion'"):
        initial_block(plain_manifest, 0).denoise(*inputs)
