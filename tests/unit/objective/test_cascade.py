"""bt_p2p.objective.cascade."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.model.block import initial_block
from bt_p2p.model.upstream import UpstreamStack
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import MASK_TOKEN

CPU = torch.device("cpu")


@pytest.fixture
def chain(manifest_of):
    """A manifest and its three blocks, every weight moved."""
    manifest = manifest_of("cascade")
    blocks = [initial_block(manifest, index) for index in range(3)]
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for block in blocks:
            for parameter in block.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return manifest, blocks


def stack_of(manifest, blocks):
    stack = UpstreamStack(manifest, len(blocks), CPU)
    for index, block in enumerate(blocks):
        stack.adopt(index, dict(block.named_parameters()))
    return stack


def random_tokens(seed, shape=(2, 12)):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed))


def traverse(manifest, blocks, tokens_NT):
    features, answers = None, []
    with torch.inference_mode():
        for index, block in enumerate(blocks):
            answer = make_objective(manifest, index).read(block, tokens_NT, 0, features)
            features = answer.features_NTD
            answers.append(answer)
    return answers


def test_training_sees_what_a_traversal_hands_on(chain):
    """The frozen stack gives the features that the block before would send."""
    manifest, blocks = chain
    tokens_NT = random_tokens(0)
    answers = traverse(manifest, blocks, tokens_NT)
    for num_blocks in (1, 2):
        stacked = stack_of(manifest, blocks[:num_blocks]).features(tokens_NT)
        assert torch.equal(answers[num_blocks - 1].features_NTD, stacked)


def test_features_reach_the_prediction_and_no_gradient_leaves_the_block(chain):
    """Other upstream weights, other loss; the upstream gets no gradient."""
    manifest, blocks = chain
    inputs, targets = random_tokens(0), random_tokens(1)

    def loss(upstream):
        objective = make_objective(manifest, 1, upstream)
        return objective.loss(blocks[1], inputs, targets, torch.Generator().manual_seed(2)).loss

    stack = stack_of(manifest, blocks[:1])
    with_upstream = loss(stack)
    with_upstream.backward()
    assert all(parameter.grad is not None for parameter in blocks[1].parameters())
    assert all(parameter.grad is None for parameter in blocks[0].parameters())
    moved = {name: value + 0.1 for name, value in blocks[0].named_parameters()}
    stack.adopt(0, moved)
    assert with_upstream.item() != loss(stack).item()


def test_a_missing_upstream_is_the_same_as_zeros(chain):
    """In training without a stack, with an empty one, and in a traversal."""
    manifest, blocks = chain
    tokens = random_tokens(0)
    zeros = torch.zeros(2, 12, 16)
    objective = make_objective(manifest, 1)
    with torch.inference_mode():
        missing = objective.read(blocks[1], tokens, 0).log_probs_NPV
        assert torch.equal(missing, objective.read(blocks[1], tokens, 0, zeros).log_probs_NPV)
    empty = UpstreamStack(manifest, 1, CPU)
    assert (None, 0) == (empty.features(tokens), empty.size_bytes())
    losses = {
        make_objective(manifest, 1, upstream)
        .loss(blocks[1], tokens, random_tokens(1), torch.Generator().manual_seed(2))
        .loss.item()
        for upstream in (None, empty)
    }
    assert 1 == len(losses)


def test_a_gap_in_the_stack_counts_as_no_features_for_the_block_after_it(chain):
    """Block 0 is missing, block 1 is there: its features of the context alone are used."""
    manifest, blocks = chain
    tokens = random_tokens(0)
    stack = UpstreamStack(manifest, 2, CPU)
    stack.adopt(1, dict(blocks[1].named_parameters()))
    alone = blocks[1](tokens).features_BTD
    assert torch.equal(alone, stack.features(tokens))


def test_unseen_bytes_move_no_block_of_the_chain(chain):
    """Trap 1 through the features: a byte after position i reaches no answer at i."""
    manifest, blocks = chain
    tokens_NT = random_tokens(0)
    base = traverse(manifest, blocks, tokens_NT)
    for i in range(11):
        other_NT = tokens_NT.clone()
        other_NT[:, i + 1 :] = (other_NT[:, i + 1 :] + 97) % 256
        for before, after in zip(base, traverse(manifest, blocks, other_NT), strict=True):
            for name in ("log_probs_NPV", "features_NTD"):
                torch.testing.assert_close(
                    getattr(before, name)[:, : i + 1],
                    getattr(after, name)[:, : i + 1],
                    rtol=0,
                    atol=1e-5,
                )


def test_the_upstream_sees_the_masks_of_the_sweep(chain):
    """A masked input is masked for the copies too: they cannot tell the target."""
    manifest, blocks = chain
    seen = []

    class Recorder:
        def features(self, tokens_BT):
            seen.append(tokens_BT)

    objective = make_objective(manifest, 1, Recorder())
    inputs = random_tokens(0, (64, 12))
    objective.loss(blocks[1], inputs, random_tokens(1, (64, 12)), torch.Generator().manual_seed(2))
    (tokens,) = seen
    assert 0 < int((tokens == MASK_TOKEN).any(dim=1).sum()) < 64


@pytest.mark.parametrize(("dropout", "share"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_a_share_of_the_sequences_does_without_upstream(chain, dropout, share):
    """So that a block can answer when the one before is missing."""
    manifest, blocks = chain
    spec = manifest.objective.model_copy(update={"upstream_dropout": dropout})
    manifest = manifest.model_copy(update={"objective": spec})
    seen = []
    blocks[1].register_forward_pre_hook(lambda module, args: seen.append(args[1]))
    objective = make_objective(manifest, 1, stack_of(manifest, blocks[:1]))
    inputs, targets = random_tokens(0, (200, 12)), random_tokens(1, (200, 12))
    objective.loss(blocks[1], inputs, targets, torch.Generator().manual_seed(2))
    dropped = (seen[0].abs().amax(dim=(1, 2)) == 0).float().mean().item()
    assert share == pytest.approx(dropped, abs=0.12)


def test_weights_that_do_not_fit_leave_the_old_copy(chain):
    """A replica of another shape, or half of one."""
    manifest, blocks = chain
    stack = stack_of(manifest, blocks[:1])
    before = stack.features(random_tokens(0))
    with pytest.raises(ValueError, match="embedding"):
        stack.adopt(0, {"embedding.weight": torch.zeros(3, 3)})
    assert torch.equal(before, stack.features(random_tokens(0)))


def test_a_block_of_another_objective_refuses_features(manifest_of):
    """A mistake in the chain is an error, not silently ignored."""
    block = initial_block(manifest_of("plain"), 0)
    with pytest.raises(ValueError, match="upstream"):
        block(random_tokens(0), torch.zeros(2, 12, 16))
