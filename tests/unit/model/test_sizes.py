"""bt_p2p.model.sizes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bt_p2p.model.block import Block
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec

SHAPES = [
    (ModelSpec(d_model=16, num_heads=2, layers_per_block=1, context=8), ObjectiveSpec()),
    (
        ModelSpec(d_model=24, num_heads=3, layers_per_block=3, context=16, mlp_ratio=2),
        ObjectiveSpec(name="diffusion", codebook_dim=12),
    ),
]


@pytest.mark.parametrize(("model", "objective"), SHAPES)
def test_parameters_equal_the_real_module(model, objective):
    """Counted, not estimated."""
    block = Block(model, objective)
    numel = sum(parameter.numel() for parameter in block.parameters())
    sizes = block_sizes(model, objective, batch_size=4)
    assert numel == sizes.num_parameters
    assert 4 * numel == sizes.weights_size_bytes


def test_optimizer_size_equals_the_real_moments():
    """Two float32 moments for each parameter."""
    model, objective = SHAPES[0]
    block = Block(model, objective)
    optimizer = torch.optim.AdamW(block.parameters())
    block(torch.zeros(1, 4, dtype=torch.int64)).logits_BTV.sum().backward()
    optimizer.step()
    moments = sum(
        value.nbytes
        for state in optimizer.state.values()
        for key, value in state.items()
        if key != "step"
    )
    assert moments == block_sizes(model, objective, batch_size=4).optimizer_size_bytes


def test_forward_flops_agree_with_torchs_counter():
    """Torch counts the full square of attention, we the causal half."""
    model, objective = SHAPES[0]
    block = Block(model, objective)
    literal = sdpa_kernel(SDPBackend.MATH)  # torch's counter does not know the fused CPU kernel
    with literal, FlopCounterMode(display=False) as counter, torch.inference_mode():
        block(torch.zeros(1, model.context, dtype=torch.int64))
    full = 4 * model.d_model * model.context
    causal = 2 * model.d_model * (model.context + 1)
    counted = counter.get_total_flops() / model.context
    sizes = block_sizes(model, objective, batch_size=1)
    assert counted - full + causal == sizes.forward_flops_per_byte
    assert 3 * sizes.forward_flops_per_byte == sizes.train_flops_per_byte


def test_total_is_the_sum_of_its_parts():
    """Weights, gradients, moments, activations; activations grow with the batch."""
    model, objective = SHAPES[1]
    small, large = (block_sizes(model, objective, batch_size=size) for size in (4, 8))
    assert 2 * small.activations_size_bytes == large.activations_size_bytes
    expected = 4 * small.weights_size_bytes + small.activations_size_bytes
    assert expected == small.training_size_bytes


def test_sizes_do_not_import_torch():
    """A command can print them without waiting for torch."""
    code = "import sys, bt_p2p.model.sizes; sys.exit('torch' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
