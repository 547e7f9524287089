"""Private looks at held-out text: how good are these weights, where nobody could prepare for it.

Shapes: N windows, T positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bt_p2p.model.block import initial_block
from bt_p2p.model.device import DeviceChoice
from bt_p2p.objective.base import Upstream
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import RunManifest

LOOK_SIZE_BYTES = 4 * 1024
"""Text in one look; three weights on it cost about one training step on as much."""
_MIN_WINDOWS = 8
"""Of long contexts; fewer say nothing of how sure a difference is."""
_WINDOWS_PER_BATCH = 32


class HeldOutProbe:
    """Scores weights of one block on windows that it draws anew for each look."""

    def __init__(
        self,
        manifest: RunManifest,
        block_index: int,
        device: DeviceChoice,
        heldout: NDArray[np.uint8],
        *,
        seed: int,
        upstream: Upstream | None = None,
    ) -> None:
        """Make a block of its own, so that the one in training is left alone.

        Args:
            manifest: the run.
            block_index: which block.
            device: where it is computed.
            heldout: bytes that are not trained on, at least two.
            seed: private; whoever knows it could fit the windows.
            upstream: features of the blocks below, for `cascade`.
        """
        self._device = device
        self._block = initial_block(manifest, block_index).to(device.device).eval()
        self._objective = make_objective(manifest, block_index)
        self._heldout = heldout
        self._upstream = upstream
        self._length = min(manifest.model.context, heldout.size - 1)
        self._num_windows = max(_MIN_WINDOWS, LOOK_SIZE_BYTES // self._length)
        self._generator = np.random.default_rng(seed)

    def __call__(self, candidates: Sequence[Mapping[str, Tensor]]) -> list[Tensor]:
        """Nats per byte of each window, float32 [N] on the CPU, for each candidate's weights."""
        starts_N = self._generator.integers(
            0, self._heldout.size - self._length, size=self._num_windows
        )
        windows = self._heldout[starts_N[:, None] + np.arange(self._length + 1)].astype(np.int64)
        windows_NT = torch.from_numpy(windows).to(self._device.device)
        return [self._score(weights, windows_NT) for weights in candidates]

    def _score(self, weights: Mapping[str, Tensor], windows_NT: Tensor) -> Tensor:
        self._block.load_weights(weights)
        found = []
        with (
            torch.inference_mode(),
            torch.autocast(
                self._device.device.type,
                dtype=torch.bfloat16,
                enabled=self._device.autocast_bf16,
            ),
        ):
            for batch_NT in torch.split(windows_NT, _WINDOWS_PER_BATCH):
                tokens_NT = batch_NT[:, :-1]
                features_NTD = (
                    None if self._upstream is None else self._upstream.features(tokens_NT)
                )
                read = self._objective.read(self._block, tokens_NT, 0, features_NTD)
                log_probs_NVT = read.log_probs_NPV.float().transpose(1, 2)
                nats_NT = F.nll_loss(log_probs_NVT, batch_NT[:, 1:], reduction="none")
                found.append(nats_NT.mean(dim=1).cpu())
        return torch.cat(found)
