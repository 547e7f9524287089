"""bt_p2p.objective.compose."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.objective.compose import compose


def random_log_probs(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(2 * torch.randn(3, 256, generator=generator), dim=-1)


def test_composition_is_the_normalised_geometric_mean():
    """p ~ (p1 p2 p3)^(1/3)."""
    parts = [random_log_probs(seed) for seed in range(3)]
    product = torch.stack([part.exp() for part in parts]).prod(0) ** (1 / 3)
    torch.testing.assert_close(product / product.sum(-1, keepdim=True), compose(parts).exp())


def test_one_block_is_its_own_composition():
    """Nothing to mix."""
    torch.testing.assert_close(random_log_probs(0), compose([random_log_probs(0)]))


def test_weights_are_shares():
    """Scale does not matter, zero leaves a block out."""
    first, second = random_log_probs(0), random_log_probs(1)
    torch.testing.assert_close(compose([first, second], [1, 3]), compose([first, second], [2, 6]))
    torch.testing.assert_close(first, compose([first, second], [5, 0]))


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0]])
def test_weights_that_do_not_fit_are_refused(weights):
    """Too few, negative, or all zero."""
    with pytest.raises(ValueError, match="do not fit 2 blocks"):
        compose([random_log_probs(0), random_log_probs(1)], weights)


def test_nothing_cannot_be_composed():
    """At least one block must have answered."""
    with pytest.raises(ValueError, match="at least one block"):
        compose([])
