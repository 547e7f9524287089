"""bt_p2p.model.transformer."""

from __future__ import annotations

import math

import torch

from bt_p2p.model.transformer import Attention, TransformerLayer, rotary_tables, rotate
from bt_p2p.protocol.manifest import ModelSpec

SPEC = ModelSpec(d_model=16, num_heads=2, context=16)


def test_rotary_angles_follow_the_equation():
    """angle(t, k) = t / 10000^(2k/K)."""
    cos_TK, sin_TK = rotary_tables(SPEC)
    head_size = 8
    for t, k in [(0, 0), (1, 0), (5, 2), (15, 3)]:
        angle = t / 10_000 ** (2 * k / head_size)
        assert abs(math.cos(angle) - cos_TK[t, k].item()) < 1e-6
        assert abs(math.sin(angle) - sin_TK[t, k].item()) < 1e-6


def test_rotated_products_depend_on_distance_only():
    """<rotate(q, t), rotate(k, s)> is a function of t - s."""
    cos_TK, sin_TK = rotary_tables(SPEC)
    generator = torch.Generator().manual_seed(0)
    q_K, k_K = torch.randn(2, 8, generator=generator)
    q_11TK = rotate(q_K.expand(1, 1, 16, 8), cos_TK, sin_TK)
    k_11TK = rotate(k_K.expand(1, 1, 16, 8), cos_TK, sin_TK)
    products_TT = q_11TK[0, 0] @ k_11TK[0, 0].T
    for distance in (0, 3, 7):
        diagonal = products_TT.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def test_attention_equals_a_literal_softmax():
    """softmax(q k^T / sqrt(K)) v over positions 0..t, written out with loops."""
    generator = torch.Generator().manual_seed(1)
    attention = Attention(SPEC)
    x_BTD = torch.randn(1, 5, 16, generator=generator)
    cos_TK, sin_TK = (table[:5] for table in rotary_tables(SPEC))
    with torch.no_grad():
        q_TD, k_TD, v_TD = attention.qkv(x_BTD)[0].split(16, dim=-1)
        mixed_TD = torch.zeros(5, 16)
        for head in range(2):
            span = slice(8 * head, 8 * head + 8)
            q_TK = rotate(q_TD[None, None, :, span], cos_TK, sin_TK)[0, 0]
            k_TK = rotate(k_TD[None, None, :, span], cos_TK, sin_TK)[0, 0]
            for t in range(5):
                shares = torch.softmax(k_TK[: t + 1] @ q_TK[t] / math.sqrt(8), dim=0)
                mixed_TD[t, span] = shares @ v_TD[: t + 1, span]
        expected_TD = attention.out(mixed_TD)
        actual_BTD = attention(x_BTD, cos_TK, sin_TK)
    torch.testing.assert_close(expected_TD, actual_BTD[0])


def test_layers_have_no_biases():
    """Only matrices and norm gains."""
    names = [name for name, _ in TransformerLayer(SPEC).named_parameters()]
    assert [] == [name for name in names if "bias" in name]
