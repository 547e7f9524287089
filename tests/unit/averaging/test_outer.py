"""bt_p2p.averaging.outer."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.averaging.outer import OuterMomentum


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.tensor([value, 0.0])}


@pytest.mark.parametrize(("momentum", "lr"), [(0.5, 1.0), (0.9, 0.7), (0.0, 0.5)])
def test_three_rounds_are_nesterov_as_published(momentum, lr):
    """DiLoCo, algorithm 1, with torch's own Nesterov SGD."""
    averages = [1.0, 1.5, 0.5]
    parameter = torch.nn.Parameter(torch.tensor([0.0, 0.0]))
    reference = torch.optim.SGD([parameter], lr=lr, momentum=momentum, nesterov=momentum > 0)
    outer = OuterMomentum(momentum, lr=lr)
    for average in averages:
        outer.begin({"a": parameter.detach().clone()})
        found = outer.step(tensors(average))
        parameter.grad = parameter.detach() - tensors(average)["a"]
        reference.step()
        torch.testing.assert_close(parameter.detach(), found["a"])
    assert found["a"][0].item() not in averages


def test_without_momentum_the_average_stays_as_it_is():
    """Nothing is kept either."""
    outer, average = OuterMomentum(0.0), tensors(1.0)
    outer.begin(tensors(0.0))
    assert outer.step(average) is average


def test_a_round_without_an_average_forgets_the_moves_before_it():
    """The next average goes on with its own move alone."""
    outer = OuterMomentum(0.5)
    outer.begin(tensors(0.0))
    outer.step(tensors(8.0))
    outer.begin(tensors(8.0))
    outer.reset()
    outer.begin(tensors(9.0))
    assert 11.5 + 0.5 * 2.5 == outer.step(tensors(11.5))["a"][0].item()


def test_the_average_itself_is_not_changed():
    """It is served, and other members hold the same numbers."""
    outer, average = OuterMomentum(0.5), tensors(2.0)
    outer.begin(tensors(0.0))
    assert 3.0 == outer.step(average)["a"][0].item()
    assert 2.0 == average["a"][0].item()
