"""One block: the unit of training. Nothing trainable is shared between blocks.

Shapes: B sequences, T positions, D d_model, V 256 bytes, Z codebook_dim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bt_p2p.errors import ConfigError
from bt_p2p.model.packing import Packing, Segment
from bt_p2p.model.seeding import seeded_generator
from bt_p2p.model.transformer import NORM_EPS, TransformerLayer, mix_causally, rotary_tables
from bt_p2p.model.wire import TensorSpec
from bt_p2p.protocol.manifest import VOCAB_SIZE, ModelSpec, ObjectiveSpec, RunManifest

INIT_STD = 0.02
"""Standard deviation of the initial matrices."""
_RESIDUAL_OUTPUTS = ("attention.out.weight", "feed_forward.down.weight")
_ZERO_AT_INIT = ("denoiser.out.weight",)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockOutput:
    """What a block makes of a batch of contexts."""

    features_BTD: Tensor
    """Normalised features, float [batch, tokens, d_model]."""
    logits_BTV: Tensor
    """Float32 [batch, tokens, 256]; position i predicts byte i + 1."""


class Denoiser(nn.Module):
    """Small network of the learned part of the denoiser; sees one position at a time."""

    def __init__(self, d_model: int, codebook_dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model + codebook_dim + 1, d_model, bias=False)
        self.out = nn.Linear(d_model, codebook_dim, bias=False)

    def forward(self, features_BTD: Tensor, scaled_z_BTZ: Tensor, c_noise_BT: Tensor) -> Tensor:
        """F of the EDM preconditioning, [batch, tokens, codebook_dim]."""
        seen = torch.cat((features_BTD.float(), scaled_z_BTZ, c_noise_BT.unsqueeze(-1)), dim=-1)
        out_BTZ: Tensor = self.out(F.gelu(self.up(seen)))
        return out_BTZ


class Block(nn.Module):
    """Embedding of 256 bytes and the mask token, layers, norm and an untied head."""

    def __init__(self, spec: ModelSpec, objective: ObjectiveSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = nn.Embedding(VOCAB_SIZE + 1, spec.d_model)
        self.layers = nn.ModuleList(TransformerLayer(spec) for _ in range(spec.layers_per_block))
        self.norm = nn.RMSNorm(spec.d_model, eps=NORM_EPS)
        self.head = nn.Linear(spec.d_model, VOCAB_SIZE, bias=False)
        self.denoiser: Denoiser | None = None
        self.upstream: nn.Linear | None = None
        if objective.name == "cascade":
            self.upstream = nn.Linear(spec.d_model, spec.d_model, bias=False)
        if objective.name == "diffusion":
            self.denoiser = Denoiser(spec.d_model, objective.codebook_dim)
        cos_TK, sin_TK = rotary_tables(spec)
        self.cos_TK: Tensor
        self.sin_TK: Tensor
        self.register_buffer("cos_TK", cos_TK, persistent=False)
        self.register_buffer("sin_TK", sin_TK, persistent=False)

    def forward(
        self,
        tokens_BT: Tensor,
        upstream_BTD: Tensor | None = None,
        packing: Packing | None = None,
    ) -> BlockOutput:
        """Predict the next byte at every position.

        Args:
            tokens_BT: int64 [batch, tokens], bytes or MASK_TOKEN, at most `context` tokens.
            upstream_BTD: features of the block before; None counts as zeros. Only for `cascade`.
            packing: how the tokens are a row of segments; None if each sequence is one of its own
                and begins with them. See `forward_segments`.

        Raises:
            ValueError: more tokens than the context holds, or features for a block without use
                for them.
        """
        end = tokens_BT.shape[1] if packing is None else packing.longest
        if end > self.spec.context:
            raise ValueError(
                f"{end} tokens do not fit in the context of {self.spec.context}; "
                f"cut the sequence first"
            )
        positions = slice(end) if packing is None else packing.positions_S
        cos_TK, sin_TK = self.cos_TK[positions], self.sin_TK[positions]
        x_BTD = self.embedding(tokens_BT)
        if self.upstream is not None:
            seen_BTD = torch.zeros_like(x_BTD) if upstream_BTD is None else upstream_BTD
            x_BTD = x_BTD + self.upstream(seen_BTD)
        elif upstream_BTD is not None:
            raise ValueError("this block sees no upstream; build it for objective 'cascade'")
        for index, layer in enumerate(self.layers):
            mix = mix_causally if packing is None else partial(packing.mix, index)
            x_BTD = layer(x_BTD, cos_TK, sin_TK, mix)
        features_BTD = self.norm(x_BTD)
        return BlockOutput(features_BTD=features_BTD, logits_BTV=self.head(features_BTD).float())

    def forward_segments(self, segments: Sequence[Segment]) -> list[BlockOutput]:
        """Sequences of several lengths and pasts in one pass; their caches are extended.

        Raises:
            ValueError: as `forward`; the caches are as before.
        """
        packing = Packing(segments)
        output: BlockOutput = self(packing.tokens_1S, packing.upstream_1SD, packing)
        packing.keep()
        parts = zip(
            packing.split(output.features_BTD), packing.split(output.logits_BTV), strict=True
        )
        return [
            BlockOutput(features_BTD=features_BTD, logits_BTV=logits_BTV)
            for features_BTD, logits_BTV in parts
        ]

    def weights(self) -> dict[str, Tensor]:
        """Copies of the weights, float32 on the CPU, always in the same order."""
        return {
            name: parameter.detach().to("cpu", torch.float32, copy=True)
            for name, parameter in self.named_parameters()
        }

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the weights in place.

        Raises:
            ValueError: other names or shapes than `weights()` gives; nothing is changed.
        """
        parameters = dict(self.named_parameters())
        found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        expected = {name: tuple(own.shape) for name, own in parameters.items()}
        if found != expected:
            names = found.keys() | expected.keys()
            odd = min(name for name in names if found.get(name) != expected.get(name))
            raise ValueError(
                f"weights do not fit the block: {odd} is {found.get(odd)}, "
                f"expected {expected.get(odd)}"
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])

    def denoise(self, features_BTD: Tensor, scaled_z_BTZ: Tensor, c_noise_BT: Tensor) -> Tensor:
        """Learned part F of the denoiser; position t uses only z of position t.

        Args:
            features_BTD: float [batch, tokens, d_model], from `forward`, never from z.
            scaled_z_BTZ: float32 [batch, tokens, codebook_dim], c_in * z.
            c_noise_BT: float32 [batch, tokens], ln(sigma) / 4.

        Returns:
            Float [batch, tokens, codebook_dim]; all zeros for initial weights.

        Raises:
            ValueError: the block was not built for the `diffusion` objective.
        """
        if self.denoiser is None:
            raise ValueError("this block has no denoiser; build it for objective 'diffusion'")
        out_BTZ: Tensor = self.denoiser(features_BTD, scaled_z_BTZ, c_noise_BT)
        return out_BTZ


def weight_specs(manifest: RunManifest) -> dict[str, TensorSpec]:
    """Shape and dtype of every weight of a block, in the order of `Block.weights`.

    All blocks of a run are alike. Nothing is allocated.
    """
    with torch.device("meta"):
        block = Block(manifest.model, manifest.objective)
    return {
        name: (tuple(parameter.shape), parameter.dtype)
        for name, parameter in block.named_parameters()
    }


def initial_block(manifest: RunManifest, block_index: int) -> Block:
    """Block `block_index` with the run's initial weights, the same on every machine.

    Matrices are normal with standard deviation 0.02, those that end a residual branch scaled by
    1 / sqrt(2 * layers_per_block); norms are one; the last matrix of the denoiser is zero.

    Raises:
        ConfigError: the run has no such block.
    """
    if not 0 <= block_index < manifest.model.num_blocks:
        raise ConfigError(
            f"run {manifest.name} has no block {block_index}; "
            f"choose from 0 to {manifest.model.num_blocks - 1}"
        )
    block = Block(manifest.model, manifest.objective)
    generator = seeded_generator(f"{manifest.seed}/{block_index}")
    residual_scale = 1 / math.sqrt(2 * manifest.model.layers_per_block)
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            elif name.endswith(_ZERO_AT_INIT):
                parameter.zero_()
            else:
                std = INIT_STD * (residual_scale if name.endswith(_RESIDUAL_OUTPUTS) else 1.0)
                draw = generator.standard_normal(tuple(parameter.shape), dtype="float32")
                parameter.copy_(torch.from_numpy(draw * draw.dtype.type(std)))
    return block
