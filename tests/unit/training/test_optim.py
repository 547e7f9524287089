"""bt_p2p.training.optim."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bt_p2p.protocol.manifest import OptimizerSpec, RoundSpec
from bt_p2p.training.optim import learning_rate, make_optimizer

SPEC = OptimizerSpec(learning_rate=0.01, warmup_steps=10)
ROUNDS = RoundSpec(decay_rounds=100)


@pytest.mark.parametrize(
    ("steps", "round_index", "expected"),
    [
        (0, 0, 0.001),
        (4, 0, 0.005),
        (9, 0, 0.01),
        (500, 0, 0.01),
        (500, 50, 0.0055),
        (500, 100, 0.001),
        (500, 10_000, 0.001),
        (0, 100, 0.0001),
        (500, 25, 0.01 * (0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)),
    ],
)
def test_rate_is_warm_up_times_cosine_then_flat(steps, round_index, expected):
    """Ends, middle and far beyond."""
    assert expected == pytest.approx(learning_rate(SPEC, ROUNDS, steps, round_index))


def test_no_warm_up_starts_at_the_peak():
    """Zero steps of it are allowed."""
    spec = OptimizerSpec(learning_rate=0.01, warmup_steps=0)
    assert 0.01 == learning_rate(spec, ROUNDS, 0, 0)


def test_only_matrices_decay():
    """With a zero gradient, matrices shrink by lr * decay and vectors stay."""
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    optimizer = make_optimizer(OptimizerSpec(learning_rate=0.1, weight_decay=0.5), [vector, matrix])
    for parameter in (matrix, vector):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(torch.full((2, 2), 0.95), matrix.data)
    torch.testing.assert_close(torch.ones(2), vector.data)


def test_two_steps_are_adamw_as_published():
    """arXiv 1711.05101 algorithm 2, by hand on one number."""
    spec = OptimizerSpec(learning_rate=0.1, beta1=0.9, beta2=0.95, weight_decay=0.5)
    parameter = nn.Parameter(torch.tensor([[2.0]]))
    optimizer = make_optimizer(spec, [parameter])
    expected, m, v = 2.0, 0.0, 0.0
    for step, gradient in enumerate([0.3, -0.7], start=1):
        parameter.grad = torch.tensor([[gradient]])
        optimizer.step()
        m = 0.9 * m + 0.1 * gradient
        v = 0.95 * v + 0.05 * gradient**2
        update = (m / (1 - 0.9**step)) / (math.sqrt(v / (1 - 0.95**step)) + 1e-8)
        expected = expected - 0.1 * 0.5 * expected - 0.1 * update
    assert expected == pytest.approx(parameter.item(), rel=1e-5)
