"""No objective lets a target into its input: the test of trap 1, for all of them."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import MASK_TOKEN

NAMES = ["plain", "cascade", "diffusion", "end_to_end"]
NUM_TOKENS = 12


def random_tokens(seed: int, shape: tuple[int, ...] = (2, NUM_TOKENS)) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", NAMES)
def test_unseen_bytes_do_not_move_what_is_read(manifest_of, stirred_block, name):
    """Position i of `read` and `advance` is the same whatever the bytes after i are."""
    manifest = manifest_of(name)
    block, objective = stirred_block(manifest), make_objective(manifest, 0)
    noise = objective.initial_noise(2, NUM_TOKENS, torch.Generator().manual_seed(1))
    tokens_NT = random_tokens(0)
    with torch.inference_mode():
        base = objective.read(block, tokens_NT, 0).log_probs_NPV
        base_step = objective.advance(block, tokens_NT, 0, noise)
        for i in range(NUM_TOKENS - 1):
            other_NT = tokens_NT.clone()
            other_NT[:, i + 1 :] = (other_NT[:, i + 1 :] + 97) % 256
            seen = slice(0, i + 1)
            step = objective.advance(block, other_NT, 0, noise)
            same = {"rtol": 0, "atol": 1e-5}
            torch.testing.assert_close(
                base[:, seen], objective.read(block, other_NT, 0).log_probs_NPV[:, seen], **same
            )
            torch.testing.assert_close(
                base_step.log_probs_NPV[:, seen], step.log_probs_NPV[:, seen], **same
            )
            if base_step.z_NPZ is not None:
                torch.testing.assert_close(base_step.z_NPZ[:, seen], step.z_NPZ[:, seen], **same)


@pytest.mark.parametrize("name", NAMES)
def test_targets_do_not_move_the_logits_of_training(manifest_of, stirred_block, name):
    """Same inputs and masks, every target replaced: the block's own outputs are the same."""
    manifest = manifest_of(name)
    block, objective = stirred_block(manifest), make_objective(manifest, 0)
    seen: list[torch.Tensor] = []
    block.register_forward_hook(lambda module, args, output: seen.append(output.logits_BTV))
    inputs_BT, targets_BT = random_tokens(0), random_tokens(1)
    for targets in (targets_BT, (targets_BT + 97) % 256):
        objective.loss(block, inputs_BT, targets, torch.Generator().manual_seed(2))
    assert torch.equal(seen[0], seen[1])


@pytest.mark.parametrize("name", NAMES)
def test_reported_cross_entropy_is_that_of_read(manifest_of, stirred_block, name):
    """`loss` reports what `read` gives for the same input, over its unmasked positions."""
    manifest = manifest_of(name)
    block, objective = stirred_block(manifest), make_objective(manifest, 0)
    seen: list[torch.Tensor] = []
    block.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    inputs_BT, targets_BT = random_tokens(0, (8, NUM_TOKENS)), random_tokens(1, (8, NUM_TOKENS))
    result = objective.loss(block, inputs_BT, targets_BT, torch.Generator().manual_seed(2))
    (tokens_BT,) = seen
    log_probs = objective.read(block, tokens_BT, 0).log_probs_NPV
    nats = [
        -log_probs[b, i, targets_BT[b, i]].item()
        for b in range(8)
        for i in range(NUM_TOKENS)
        if tokens_BT[b, i] != MASK_TOKEN
    ]
    assert len(nats) < 8 * NUM_TOKENS
    assert sum(nats) / len(nats) == pytest.approx(result.cross_entropy, abs=1e-4)
    assert 8 * NUM_TOKENS == result.num_bytes


def test_noise_of_one_position_moves_only_its_own_prediction(manifest_of, stirred_block):
    """z never reaches the context of another position (trap 4)."""
    manifest = manifest_of("diffusion")
    block, objective = stirred_block(manifest), make_objective(manifest, 0)
    tokens_NT = random_tokens(0)
    z_NPZ = objective.initial_noise(2, 8, torch.Generator().manual_seed(1))
    with torch.inference_mode():
        base = objective.advance(block, tokens_NT, 4, z_NPZ)
        for j in range(8):
            other_NPZ = z_NPZ.clone()
            other_NPZ[:, j] += 3.0
            step = objective.advance(block, tokens_NT, 4, other_NPZ)
            moved = (step.log_probs_NPV - base.log_probs_NPV).abs().amax(dim=(0, 2)) > 1e-5
            assert [j] == moved.nonzero().flatten().tolist()
            moved = (step.z_NPZ - base.z_NPZ).abs().amax(dim=(0, 2)) > 1e-5
            assert [j] == moved.nonzero().flatten().tolist()


@pytest.mark.parametrize("name", NAMES)
def test_reading_from_a_start_is_a_slice_of_reading_all(manifest_of, stirred_block, name):
    """start..T-1, normalised."""
    manifest = manifest_of(name)
    block, objective = stirred_block(manifest), make_objective(manifest, 0)
    tokens_NT = random_tokens(0)
    with torch.inference_mode():
        everything, tail = (
            objective.read(block, tokens_NT, start).log_probs_NPV for start in (0, 9)
        )
    assert (2, 3, 256) == tuple(tail.shape)
    torch.testing.assert_close(everything[:, 9:], tail)
    torch.testing.assert_close(torch.ones(2, 3), tail.exp().sum(-1))
