"""The paper's objective: every block denoises the next byte's embedding in one noise band.

Reference: BlockTrain, arXiv 2606.24722; DiffusionBlocks, arXiv 2506.14202; EDM, arXiv 2206.00364.

The target of position i is e_y, the codebook row of byte i + 1, and z = e_y + sigma * eps.

    D      = c_skip * z + c_out * F(features, c_in * z, c_noise)
    logits = context_logits + weight(sigma) * <D, e_y>          weight = (s^2 + sd^2) / (s sd)^2

Because weight * c_skip = 1 / s^2 and |e_y| = 1, a zero F gives exactly the Bayes posterior

    log p(y | context, z) = log p(y | context) + <z, e_y> / s^2 + const,

so an untrained denoiser is already right about z, and F learns a correction.

Differs: the codebook is fixed and seeded (norms cannot grow), and z reaches only the prediction
of its own position, never the context of a later one. `read` uses no z: below sigma about 0.25 z
gives the byte away, so a cross entropy that saw z is not a language-model number. F reads the
features under stop-gradient: otherwise it becomes a second head for the context, and the logits
that `read` returns learn less (measured: 0.2 nats per byte worse). And the context's own logits are
trained without z as well: where z nearly gives the byte away, the denoised loss teaches them little.

Shapes as in base.py; Z is codebook_dim.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

from bt_p2p.errors import WireFormatError
from bt_p2p.objective.base import (
    BlockLike,
    BlockLoss,
    BlockOutputLike,
    TraversalMode,
    Traversed,
    log_probs_from,
)
from bt_p2p.objective.noise import NoiseBands, coefficients, euler_step, loss_weight
from bt_p2p.objective.plain import mask_suffixes, nats_per_position
from bt_p2p.protocol.manifest import MASK_TOKEN, VOCAB_SIZE, RunManifest


def seeded_codebook(seed: int, codebook_dim: int) -> Tensor:
    """Fixed embeddings of the 256 bytes, unit norm, the same on every machine.

    Returns:
        Float32 [256, codebook_dim].
    """
    digest = hashlib.sha256(f"{seed}/codebook".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    rows_VZ = generator.standard_normal((VOCAB_SIZE, codebook_dim))
    rows_VZ /= np.linalg.norm(rows_VZ, axis=1, keepdims=True)
    return torch.from_numpy(rows_VZ.astype(np.float32))


class DiffusionObjective:
    """Denoising cross entropy in the band of one block."""

    name = "diffusion"

    def __init__(self, manifest: RunManifest, block_index: int) -> None:
        self._spec = manifest.objective
        self._block_index = block_index
        self.bands = NoiseBands(manifest.objective, manifest.model.num_blocks)
        self.codebook_VZ = seeded_codebook(manifest.seed, self._spec.codebook_dim)
        self.sigma_data = 1 / math.sqrt(self._spec.codebook_dim)
        """Standard deviation of one component of a unit-norm embedding."""

    def is_sequential(self, mode: TraversalMode) -> bool:
        """Only generation hands on z."""
        return mode == "advance"

    def loss(
        self,
        block: BlockLike,
        inputs_BT: Tensor,
        targets_BT: Tensor,
        generator: torch.Generator,
    ) -> BlockLoss:
        """Cross entropy of context and denoised logits; see `BlockObjective.loss`.

        Every position draws its own sigma from this block's band. The denoised part is weighted;
        its weights are divided by their mean.
        """
        device = inputs_BT.device
        shape = (inputs_BT.shape[0], inputs_BT.shape[1])
        tokens_BT = mask_suffixes(inputs_BT, self._spec, generator)
        sigma_BT = self.bands.sample(self._block_index, shape, generator).to(device)
        eps_BTZ = torch.randn(*shape, self._spec.codebook_dim, generator=generator).to(device)
        z_BTZ = self._codebook(device)[targets_BT] + sigma_BT.unsqueeze(-1) * eps_BTZ

        output = block(tokens_BT)
        nats_BT = nats_per_position(
            self.denoised_logits(block, output, z_BTZ, sigma_BT), targets_BT
        )
        weight_BT = loss_weight(sigma_BT, self.sigma_data)
        context_nats_BT = nats_per_position(output.logits_BTV, targets_BT)
        honest_nats = context_nats_BT.detach()[tokens_BT != MASK_TOKEN].mean()
        return BlockLoss(
            loss=context_nats_BT.mean() + (weight_BT / weight_BT.mean() * nats_BT).mean(),
            cross_entropy=float(honest_nats),
            num_bytes=targets_BT.numel(),
        )

    def read(
        self,
        block: BlockLike,
        tokens_NT: Tensor,
        start: int,
        features_NTD: Tensor | None = None,  # noqa: ARG002  # the port has it
    ) -> Traversed:
        """The context's logits alone, with no z at all; see `BlockObjective.read`."""
        return Traversed(log_probs_NPV=log_probs_from(block(tokens_NT).logits_BTV, start))

    def advance(
        self,
        block: BlockLike,
        tokens_NT: Tensor,
        start: int,
        z_NPZ: Tensor | None,
        features_NTD: Tensor | None = None,  # noqa: ARG002
    ) -> Traversed:
        """Denoise from the top of this block's band to its bottom; see `BlockObjective.advance`."""
        num_sequences, num_tokens = tokens_NT.shape
        shape = (num_sequences, num_tokens - start, self._spec.codebook_dim)
        if z_NPZ is None or tuple(z_NPZ.shape) != shape:
            found = None if z_NPZ is None else list(z_NPZ.shape)
            raise WireFormatError(
                f"objective diffusion needs z of shape {list(shape)}, got {found}; "
                f"start block 0 from initial_noise"
            )
        bottom, top = self.bands.band(self._block_index)
        codebook_VZ = self._codebook(tokens_NT.device)
        z_NPZ = z_NPZ.to(device=tokens_NT.device, dtype=torch.float32)
        sigma_NP = torch.full(shape[:2], top, device=tokens_NT.device)
        output = _ReadPositions(block(tokens_NT), start)
        logits_NPV = self.denoised_logits(block, output, z_NPZ, sigma_NP)
        log_probs_NPV = log_probs_from(logits_NPV, 0)
        denoised_NPZ = log_probs_NPV.exp() @ codebook_VZ
        return Traversed(
            log_probs_NPV=log_probs_NPV, z_NPZ=euler_step(z_NPZ, denoised_NPZ, top, bottom)
        )

    def initial_noise(
        self, num_sequences: int, num_positions: int, generator: torch.Generator
    ) -> Tensor | None:
        """Pure noise at the highest sigma, float32 on the CPU."""
        shape = (num_sequences, num_positions, self._spec.codebook_dim)
        return self._spec.sigma_max * torch.randn(shape, generator=generator)

    def denoised_logits(
        self, block: BlockLike, output: BlockOutputLike, z_BTZ: Tensor, sigma_BT: Tensor
    ) -> Tensor:
        """Logits of the next byte given context and z; the equation on top of the file."""
        with torch.autocast(z_BTZ.device.type, enabled=False):
            parts = coefficients(sigma_BT, self.sigma_data)
            learned_BTZ = block.denoise(
                output.features_BTD.detach().float(),
                parts.c_in.unsqueeze(-1) * z_BTZ,
                parts.c_noise,
            )
            denoised_BTZ = (
                parts.c_skip.unsqueeze(-1) * z_BTZ + parts.c_out.unsqueeze(-1) * learned_BTZ
            )
            similarity_BTV = denoised_BTZ @ self._codebook(z_BTZ.device).T
            weight_BT = loss_weight(sigma_BT, self.sigma_data)
            return output.logits_BTV.float() + weight_BT.unsqueeze(-1) * similarity_BTV

    def _codebook(self, device: torch.device) -> Tensor:
        if self.codebook_VZ.device != device:
            self.codebook_VZ = self.codebook_VZ.to(device)
        return self.codebook_VZ


class _ReadPositions:
    """The part of a block's output from one position on."""

    def __init__(self, output: BlockOutputLike, start: int) -> None:
        self.features_BTD = output.features_BTD[:, start:]
        self.logits_BTV = output.logits_BTV[:, start:]
