"""Frozen copies of the blocks before a block, forward only: what `cascade` trains on."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bt_p2p.model.block import Block
from bt_p2p.protocol.manifest import RunManifest


class UpstreamStack:
    """Blocks 0..n-1 without gradients and optimizer; those not adopted yet count as missing."""

    def __init__(self, manifest: RunManifest, num_blocks: int, device: torch.device) -> None:
        """Everything is missing at first, and takes no memory."""
        self._manifest = manifest
        self._device = device
        self._blocks: list[Block | None] = [None] * num_blocks

    def adopt(self, block_index: int, weights: Mapping[str, Tensor]) -> None:
        """Replace the copy of one block.

        Raises:
            ValueError: a weight is missing or of another shape; the old copy stays.
        """
        block = self._blocks[block_index]
        if block is None:
            block = Block(self._manifest.model, self._manifest.objective)
            block = block.to(self._device).eval().requires_grad_(False)
        block.load_weights(weights)
        self._blocks[block_index] = block

    def features(self, tokens_BT: Tensor) -> Tensor | None:
        """Features of the last block of the stack; see `objective.base.Upstream`.

        A missing block breaks the chain: the one after it sees zeros, as it would in a traversal.
        """
        features_BTD: Tensor | None = None
        with torch.no_grad():
            for block in self._blocks:
                if block is None:
                    features_BTD = None
                else:
                    features_BTD = block(tokens_BT, features_BTD).features_BTD.float()
        return features_BTD

    def size_bytes(self) -> int:
        """Memory of the copies."""
        return sum(
            parameter.numel() * parameter.element_size()
            for block in self._blocks
            if block is not None
            for parameter in block.parameters()
        )
