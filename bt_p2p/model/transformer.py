"""Causal transformer layers: pre-norm RMSNorm, rotary positions, GELU, no biases.

Not covered: dropout, grouped heads.

Shapes: B sequences, T positions, D d_model, H heads, K size of a head, M hidden width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bt_p2p.protocol.manifest import ModelSpec

ROTARY_BASE = 10_000.0
"""Slowest wavelength of the rotary positions is about 2 pi times this, in positions."""
NORM_EPS = 1e-6

Mix = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values of new positions, float [batch, heads, tokens, K], to what each position
takes from those it sees, of the same shape."""


def rotary_tables(spec: ModelSpec) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions.

    Reference: arXiv 2104.09864 eq. 15, angle(t, k) = t / base^(2k/K).

    Returns:
        Two float32 tensors [context, K/2].
    """
    head_size = spec.d_model // spec.num_heads
    exponents_K = torch.arange(0, head_size, 2, dtype=torch.float64) / head_size
    times_T = torch.arange(spec.context, dtype=torch.float64)
    angles_TK = torch.outer(times_T, ROTARY_BASE**-exponents_K)
    return angles_TK.cos().float(), angles_TK.sin().float()


def rotate(x_BHTK: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Turn each pair (x[k], x[k + K/2]) by its angle, in float32."""
    left_BHTK, right_BHTK = x_BHTK.float().chunk(2, dim=-1)
    return torch.cat(
        (
            left_BHTK * cos_TK - right_BHTK * sin_TK,
            left_BHTK * sin_TK + right_BHTK * cos_TK,
        ),
        dim=-1,
    )


def mix_causally(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Whole sequences from their beginning: position t sees positions 0..t."""
    return F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.num_heads = spec.num_heads
        self.qkv = nn.Linear(spec.d_model, 3 * spec.d_model, bias=False)
        self.out = nn.Linear(spec.d_model, spec.d_model, bias=False)

    def forward(
        self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor, mix: Mix = mix_causally
    ) -> Tensor:
        """Mix positions.

        Args:
            x_BTD: float [batch, tokens, d_model].
            cos_TK: float32 [tokens, K/2], as sin_TK, for these positions.
            sin_TK: see `rotary_tables`.
            mix: decides which positions each one sees.
        """
        num_sequences, num_tokens, d_model = x_BTD.shape
        qkv_BTCHK = self.qkv(x_BTD).view(num_sequences, num_tokens, 3, self.num_heads, -1)
        qk_2BHTK, v_1BHTK = qkv_BTCHK.permute(2, 0, 3, 1, 4).split((2, 1))
        # On a CPU the bf16 attention kernel is several times slower than the float32 one.
        dtype = torch.float32 if x_BTD.device.type == "cpu" else v_1BHTK.dtype
        with torch.autocast(x_BTD.device.type, enabled=False):
            q_BHTK, k_BHTK = rotate(qk_2BHTK, cos_TK, sin_TK).to(dtype).unbind()
            mixed_BHTK = mix(q_BHTK, k_BHTK, v_1BHTK[0].to(dtype))
        mixed_BTD = mixed_BHTK.transpose(1, 2).reshape(num_sequences, num_tokens, d_model)
        out_BTD: Tensor = self.out(mixed_BTD)
        return out_BTD


class FeedForward(nn.Module):
    """Two matrices around a GELU."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.up = nn.Linear(spec.d_model, spec.mlp_ratio * spec.d_model, bias=False)
        self.down = nn.Linear(spec.mlp_ratio * spec.d_model, spec.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each position alone."""
        hidden_BTM = F.gelu(self.up(x_BTD))
        out_BTD: Tensor = self.down(hidden_BTM)
        return out_BTD


class TransformerLayer(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(spec.d_model, eps=NORM_EPS)
        self.attention = Attention(spec)
        self.feed_forward_norm = nn.RMSNorm(spec.d_model, eps=NORM_EPS)
        self.feed_forward = FeedForward(spec)

    def forward(
        self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor, mix: Mix = mix_causally
    ) -> Tensor:
        """One layer; arguments as in `Attention.forward`."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), cos_TK, sin_TK, mix)
        out_BTD: Tensor = x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD))
        return out_BTD
