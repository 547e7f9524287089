"""bt_p2p.training.optim."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bt_p2p.protocol.manifest import OptimizerSpec, RoundSpec
from bt_p2p.training.optim import BlockOptimizer, make_adamw, rate_share

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
    assert expected == pytest.approx(
        SPEC.learning_rate * rate_share(SPEC, ROUNDS, steps, round_index)
    )


def test_no_warm_up_starts_at_the_peak():
    """Zero steps of it are allowed."""
    spec = OptimizerSpec(learning_rate=0.01, warmup_steps=0)
    assert 1.0 == rate_share(spec, ROUNDS, 0, 0)


def test_only_matrices_decay():
    """With a zero gradient, matrices shrink by lr * decay and vectors stay."""
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    optimizer = make_adamw(OptimizerSpec(learning_rate=0.1, weight_decay=0.5), [vector, matrix])
    for parameter in (matrix, vector):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(torch.full((2, 2), 0.95), matrix.data)
    torch.testing.assert_close(torch.ones(2), vector.data)


def test_two_steps_are_adamw_as_published():
    """arXiv 1711.05101 algorithm 2, by hand on one number."""
    spec = OptimizerSpec(learning_rate=0.1, beta1=0.9, beta2=0.95, weight_decay=0.5)
    parameter = nn.Parameter(torch.tensor([[2.0]]))
    optimizer = make_adamw(spec, [parameter])
    expected, m, v = 2.0, 0.0, 0.0
    for step, gradient in enumerate([0.3, -0.7], start=1):
        parameter.grad = torch.tensor([[gradient]])
        optimizer.step()
        m = 0.9 * m + 0.1 * gradient
        v = 0.95 * v + 0.05 * gradient**2
        update = (m / (1 - 0.9**step)) / (math.sqrt(v / (1 - 0.95**step)) + 1e-8)
        expected = expected - 0.1 * 0.5 * expected - 0.1 * update
    assert expected == pytest.approx(parameter.item(), rel=1e-5)


def test_two_steps_are_muon_as_published():
    """arXiv 2502.16982 section 2: the momentum, orthogonalised, scaled by 0.2 * sqrt(longer side).

    Nesterov momentum of torch: each gradient is averaged in with weight 1 - momentum.
    """
    generator = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(6, 4, generator=generator), torch.randn(2, 6, 4)
    parameter = nn.Parameter(start.clone())
    spec = OptimizerSpec(muon_learning_rate=0.1, muon_momentum=0.9, weight_decay=0.5)
    optimizer = BlockOptimizer(spec, {"layers.0.up.weight": parameter})
    expected, momentum = start.double(), torch.zeros(6, 4).double()
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step(1.0)
        momentum = 0.9 * momentum + 0.1 * gradient.double()
        left, _, right = torch.linalg.svd(
            0.1 * gradient.double() + 0.9 * momentum, full_matrices=False
        )
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * 0.2 * math.sqrt(6) * left @ right
    step = (parameter.detach().double() - expected).norm() / (expected - start).norm()
    assert 0.25 > step  # five Newton-Schulz steps bring singular values near one, no closer


def test_muon_moves_the_matrices_inside_the_layers_and_keeps_one_moment_of_them():
    """Embedding, head and norms belong to AdamW, which keeps two."""
    names = ["embedding.weight", "layers.0.up.weight", "head.weight"]
    parameters = {name: nn.Parameter(torch.ones(3, 3)) for name in names}
    parameters["layers.0.norm.weight"] = nn.Parameter(torch.ones(3))
    optimizer = BlockOptimizer(OptimizerSpec(), parameters)
    assert {} == optimizer.moments()
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(0.5)
    matrices = {
        "moment1/embedding.weight",
        "moment2/embedding.weight",
        "momentum/layers.0.up.weight",
    }
    matrices |= {"moment1/head.weight", "moment2/head.weight"}
    vectors = {"moment1/layers.0.norm.weight", "moment2/layers.0.norm.weight"}
    assert matrices | vectors == set(optimizer.moments())
    assert 4 * (5 * 9 + 2 * 3) == optimizer.size_bytes()
