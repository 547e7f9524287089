"""Parameters, FLOPs and memory of one block, by arithmetic alone: nothing is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.protocol.manifest import VOCAB_SIZE, ModelSpec, ObjectiveSpec

_FLOAT_BYTES = 4
_TRAIN_OVER_FORWARD = 3
"""The backward pass costs about two forward passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockSizes:
    """What one block costs its replica."""

    num_parameters: int
    """Trainable numbers."""
    forward_flops_per_byte: int
    """Floating-point operations for one predicted byte at full context; attention is causal."""
    train_flops_per_byte: int
    """The same for a training step, forward and backward."""
    weights_size_bytes: int
    """Weights in float32."""
    optimizer_size_bytes: int
    """The two moments of AdamW in float32."""
    activations_size_bytes: int
    """Rough: what a float32 training step keeps for the backward pass."""

    @property
    def training_size_bytes(self) -> int:
        """Rough total for training: weights, gradients, optimizer and activations."""
        return 2 * self.weights_size_bytes + self.optimizer_size_bytes + self.activations_size_bytes


def block_sizes(model: ModelSpec, objective: ObjectiveSpec, *, batch_size: int) -> BlockSizes:
    """Sizes of any block of the run; all blocks are alike.

    Args:
        model: shape of the transformer.
        objective: `diffusion` adds a denoiser, `cascade` a matrix for the features it is given.
        batch_size: sequences in one local step.
    """
    d_model, num_layers, mlp_width = (
        model.d_model,
        model.layers_per_block,
        model.mlp_ratio * model.d_model,
    )
    layer_matrices = 4 * d_model * d_model + 2 * d_model * mlp_width
    head = d_model * VOCAB_SIZE
    extra = 0
    if objective.name == "cascade":
        extra = d_model * d_model
    elif objective.name == "diffusion":
        extra = d_model * (d_model + objective.codebook_dim + 1)
        extra += d_model * objective.codebook_dim
    matrices = num_layers * layer_matrices + head + extra
    norms = (2 * num_layers + 1) * d_model
    embedding = (VOCAB_SIZE + 1) * d_model
    num_parameters = matrices + norms + embedding

    attention_flops = 2 * d_model * (model.context + 1)
    forward_flops = 2 * matrices + num_layers * attention_flops
    kept_per_position = num_layers * (11 * d_model + 2 * mlp_width) + 2 * d_model + 3 * VOCAB_SIZE
    weights_size = _FLOAT_BYTES * num_parameters
    return BlockSizes(
        num_parameters=num_parameters,
        forward_flops_per_byte=forward_flops,
        train_flops_per_byte=_TRAIN_OVER_FORWARD * forward_flops,
        weights_size_bytes=weights_size,
        optimizer_size_bytes=2 * weights_size,
        activations_size_bytes=_FLOAT_BYTES * kept_per_position * batch_size * model.context,
    )
