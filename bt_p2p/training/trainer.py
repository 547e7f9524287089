"""`BlockTrainer`: one replica's block, its optimizer and its counters.

Everything random about a step follows from seed, peer, round and step, so a trainer that is
restored on the same CPU continues bit for bit. Not safe for use from several threads at once.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bt_p2p.errors import CheckpointError, OutOfMemoryError
from bt_p2p.model.block import Block, initial_block
from bt_p2p.model.checkpoint import Checkpoint
from bt_p2p.model.device import DeviceChoice, is_out_of_memory
from bt_p2p.objective.base import BlockLoss, Upstream
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.training.data import BatchSource, batch_key
from bt_p2p.training.optim import BlockOptimizer, rate_share

logger = logging.getLogger(__name__)

_WEIGHT = "weight/"
_COUNTERS = (
    "round_index",
    "step_in_round",
    "samples_in_round",
    "steps_since_fresh",
    "total_steps",
    "bad_steps",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What one local step did."""

    loss: float
    """Local loss; not finite if the step was skipped for it."""
    cross_entropy: float
    """Nats per byte, honest: no target in the input."""
    num_bytes: int
    """Bytes trained on; 0 when the step was skipped."""
    lr: float
    """Learning rate of the step (AdamW's)."""

    @property
    def is_skipped(self) -> bool:
        """True when the loss or a gradient was not finite, so the weights are unchanged."""
        return self.num_bytes == 0


class BlockTrainer:
    """Trains one block on its local objective, starting from the run's initial weights.

    When memory runs out in a step, the step is done again in twice as many parts, whose gradients
    are added up: it stays a step on the whole batch, and so do all that follow. Parts draw their
    masks and noise anew, so digits differ from those of an undivided step.

    Attributes:
        block: the module, on the chosen device.
        round_index: round being trained for; set by `start_round`.
        step_in_round: steps since the round started.
        samples_in_round: sequences trained on since the round started.
        steps_since_fresh: steps of this optimizer, for the warm-up.
        total_steps: steps since the first start.
        bad_steps: steps skipped because the loss or a gradient was not finite.
        num_parts: parts in which a step is done; a power of two, or the whole batch one by one.
    """

    def __init__(
        self,
        manifest: RunManifest,
        block_index: int,
        device: DeviceChoice,
        source: BatchSource,
        peer_id: str,
        *,
        upstream: Upstream | None = None,
        compile_block: bool = False,
        num_parts: int = 1,
    ) -> None:
        """Make the block.

        Args:
            manifest: the run.
            block_index: which block.
            device: where it trains.
            source: its batches.
            peer_id: whose order of the data.
            upstream: what `cascade` trains on.
            compile_block: use torch.compile, which needs a C++ compiler and a minute at the start.
            num_parts: parts to do a step in from the start, to need less memory.

        Raises:
            ConfigError: the run has no such block.
        """
        self._manifest = manifest
        self._block_index = block_index
        self._device = device
        self._source = source
        self._peer_id = peer_id
        self.block = initial_block(manifest, block_index).to(device.device)
        self._callable: Block = torch.compile(self.block) if compile_block else self.block  # type: ignore[assignment]
        self._objective = make_objective(manifest, block_index, upstream)
        self._parameters: dict[str, nn.Parameter] = dict(self.block.named_parameters())
        self._optimizer = BlockOptimizer(manifest.optimizer, self._parameters)
        self.round_index = 0
        self.step_in_round = 0
        self.samples_in_round = 0
        self.steps_since_fresh = 0
        self.total_steps = 0
        self.bad_steps = 0
        self.num_parts = min(num_parts, manifest.optimizer.batch_size)

    def start_round(self, round_index: int) -> None:
        """Begin a round: its own data order, counters of the round at zero."""
        self.round_index = round_index
        self.step_in_round = 0
        self.samples_in_round = 0

    def train_step(self) -> StepResult:
        """One step on the next batch; skipped and counted if anything is not finite.

        Raises:
            OutOfMemoryError: not even one sequence at a time fits into memory.
        """
        try:
            return self._train_step()
        except (RuntimeError, MemoryError) as exc:
            if not is_out_of_memory(exc):
                raise
            raise OutOfMemoryError(
                f"out of memory beside the gradients of block {self._block_index} ({exc}); close "
                f"other programs, or join a run with smaller blocks"
            ) from exc

    def _train_step(self) -> StepResult:
        position = (self._manifest.seed, self._peer_id, self.round_index, self.step_in_round)
        inputs_BT, targets_BT = self._source.batch(*position)
        spec = self._manifest.optimizer
        share = rate_share(spec, self._manifest.rounds, self.steps_since_fresh, self.round_index)
        while isinstance(
            sums := self._try_gradients(inputs_BT, targets_BT, _generator(*position)), str
        ):
            self._divide_further(inputs_BT.shape[0], sums)
        is_finite = math.isfinite(sums.loss)
        if is_finite:
            norm = nn.utils.clip_grad_norm_(self._parameters.values(), spec.clip_norm)
            is_finite = math.isfinite(float(norm))
        self.step_in_round += 1
        self.total_steps += 1
        if is_finite:
            self._optimizer.step(share)
            self.steps_since_fresh += 1
            self.samples_in_round += inputs_BT.shape[0]
        else:
            self.bad_steps += 1
        return StepResult(
            loss=sums.loss,
            cross_entropy=sums.nats / sums.num_bytes,
            num_bytes=sums.num_bytes if is_finite else 0,
            lr=share * spec.learning_rate,
        )

    def _try_gradients(
        self, inputs_BT: Tensor, targets_BT: Tensor, generator: torch.Generator
    ) -> _Sums | str:
        """Loss and gradients of a batch, part by part; in words if memory ran out."""
        self._optimizer.zero_grad()
        try:
            return self._gradients(inputs_BT, targets_BT, generator)
        except (RuntimeError, MemoryError) as exc:
            if not is_out_of_memory(exc):
                raise
            return str(exc) or type(exc).__name__

    def _gradients(
        self, inputs_BT: Tensor, targets_BT: Tensor, generator: torch.Generator
    ) -> _Sums:
        device, batch_size = self._device.device, inputs_BT.shape[0]
        sums = _Sums()
        for part in range(self.num_parts):
            rows = slice(
                part * batch_size // self.num_parts, (part + 1) * batch_size // self.num_parts
            )
            with torch.autocast(
                device.type, dtype=torch.bfloat16, enabled=self._device.autocast_bf16
            ):
                result = self._objective.loss(
                    self._callable,
                    inputs_BT[rows].to(device),
                    targets_BT[rows].to(device),
                    generator,
                )
            weight = (rows.stop - rows.start) / batch_size
            sums.add(result, weight)
            if not math.isfinite(sums.loss):
                return sums
            torch.autograd.backward(result.loss if weight == 1 else result.loss * weight)
        return sums

    def _divide_further(self, batch_size: int, reason: str) -> None:
        """Do steps in twice as many parts from now on.

        Raises:
            OutOfMemoryError: they are done one sequence at a time already.
        """
        self._optimizer.zero_grad()
        if self._device.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.num_parts >= batch_size:
            raise OutOfMemoryError(
                f"out of memory in block {self._block_index}, even with one sequence at a time "
                f"({reason}); close other programs, or join a run with smaller blocks or a "
                f"shorter context"
            )
        self.num_parts = min(2 * self.num_parts, batch_size)
        logger.warning(
            "out of memory with a batch of %d: steps are done in %d parts from now on (%s)",
            batch_size,
            self.num_parts,
            reason,
        )

    def weights(self) -> dict[str, Tensor]:
        """Copies of the weights, float32 on the CPU, always in the same order."""
        return self.block.weights()

    def optimizer_size_bytes(self) -> int:
        """Memory that the optimizer's moments take; 0 before the first step."""
        return self._optimizer.size_bytes()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the weights in place; the optimizer keeps its moments.

        Raises:
            ValueError: other names or shapes than `weights` gives; nothing is changed.
        """
        self.block.load_weights(weights)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors and facts for `save_checkpoint`: weights, moments and counters."""
        tensors = {f"{_WEIGHT}{name}": tensor for name, tensor in self.weights().items()}
        tensors |= self._optimizer.moments()
        facts = {counter: str(getattr(self, counter)) for counter in _COUNTERS}
        facts |= {
            "run": self._manifest.run_id,
            "block": str(self._block_index),
            "num_updates": str(self._optimizer.num_updates),
        }
        return tensors, facts

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of the same block of the same run.

        Raises:
            CheckpointError: of another run or block, or incomplete; nothing is changed.
        """
        facts = checkpoint.facts
        expected = (self._manifest.run_id, str(self._block_index))
        if (facts.get("run"), facts.get("block")) != expected:
            raise CheckpointError(
                f"checkpoint {checkpoint.path} is of block {facts.get('block')} of run "
                f"{facts.get('run')}, not of block {self._block_index} of run "
                f"{self._manifest.run_id}; use another folder for each run"
            )
        try:
            counters = {counter: int(facts[counter]) for counter in _COUNTERS}
            num_updates = int(facts["num_updates"])
            tensors = checkpoint.tensors
            weights = {name: tensors[f"{_WEIGHT}{name}"] for name in self._parameters}
            previous = self.weights()
            self.load_weights(weights)
            try:
                self._optimizer.restore(tensors, num_updates)
            except (KeyError, ValueError):
                self.load_weights(previous)
                raise
        except (KeyError, ValueError) as exc:
            raise CheckpointError(
                f"checkpoint {checkpoint.path} does not fit this block: {exc}; "
                f"move it away to start from the swarm's weights"
            ) from exc
        for counter, value in counters.items():
            setattr(self, counter, value)


@dataclass(kw_only=True, slots=True)
class _Sums:
    """Over the parts of a batch."""

    loss: float = 0.0
    nats: float = 0.0
    num_bytes: int = 0

    def add(self, result: BlockLoss, weight: float) -> None:
        """Count a part that is this share of the batch."""
        self.loss += weight * float(result.loss.detach())
        self.nats += result.cross_entropy * result.num_bytes
        self.num_bytes += result.num_bytes


def _generator(seed: int, peer_id: str, round_index: int, step: int) -> torch.Generator:
    text = f"objective/{batch_key(seed, peer_id, round_index, step)}"
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
