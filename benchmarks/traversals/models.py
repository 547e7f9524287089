"""The two models: found and loaded, one as a chain that generates, one as a judge of text."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from benchmarks.quality.plan import Training
from benchmarks.quality.training import load_weights
from bt_p2p.chain.block_rpc import BlockService
from bt_p2p.chain.drafter import BlockDrafter
from bt_p2p.chain.generate import Chunk, GenerateOptions, generate
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.chain.session import ChainSession
from bt_p2p.errors import ConfigError
from bt_p2p.model.block import Block
from bt_p2p.objective.compose import compose
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_overview

_AT_ONCE = 8
"""Prefixes under way together, so that no block waits while another one computes."""

Watch = Callable[[], bool]
"""Told of a traversal; False if no more are wanted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """A model with its last weights."""

    title: str
    manifest: RunManifest
    weights: tuple[dict[str, Tensor], ...]
    """Of each block."""

    @property
    def sha256(self) -> str:
        """Of all weights, in hex."""
        digest = hashlib.sha256()
        for tensors in self.weights:
            for name in sorted(tensors):
                digest.update(tensors[name].contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """One continuation."""

    data: bytes
    num_traversals: int


def load_trained(
    trainings: Sequence[Training], arm: str, *, budget: str | None, seed: int, work: Path
) -> Trained:
    """Read the last weights of an arm, under its longest budget if none is named.

    Raises:
        ConfigError: there is no such training, or it is not finished.
        CheckpointError: weights are missing or damaged.
    """
    found = [
        training
        for training in trainings
        if (training.arm.name, training.seed) == (arm, seed)
        and budget in (None, training.budget.name)
    ]
    if not found:
        known = ", ".join(training.title for training in trainings)
        raise ConfigError(f"there is no {arm} {budget or ''} seed {seed}; there are: {known}")
    training = max(found, key=lambda one: one.budget.steps)
    if not training.is_done(work):
        raise ConfigError(
            f"{training.title} is not trained to its end in {work}; run benchmarks.quality with "
            f"the same config, or choose another arm, budget or --work"
        )
    blocks = range(training.manifest.model.num_blocks)
    paths = [training.weights_path(work, block, training.eval_steps[-1]) for block in blocks]
    weights = tuple(load_weights(path) for path in paths)
    return Trained(title=training.title, manifest=training.manifest, weights=weights)


class Judge:
    """Says how likely a model finds a text after another one."""

    def __init__(self, trained: Trained) -> None:
        manifest = trained.manifest
        self._context = manifest.model.context
        self._objectives = [make_objective(manifest, b) for b in range(len(trained.weights))]
        self._blocks = [Block(manifest.model, manifest.objective).eval() for _ in trained.weights]
        for block, weights in zip(self._blocks, trained.weights, strict=True):
            block.load_state_dict(weights)

    def nats(self, prefix: bytes, output: bytes) -> float:
        """Cross entropy of `output` after `prefix`, summed over the bytes of `output` only.

        Each byte is predicted from all before it, or from the last ones that fill the context.
        """
        text = torch.tensor([*prefix, *output])
        total, first = 0.0, len(prefix)
        while first < len(text):
            # bytes with the whole text before them share a window, each later one has its own
            end = min(len(text), max(first + 1, self._context + 1))
            window, targets = text[max(0, end - 1 - self._context) : end], text[first:end]
            log_probs_PV = self._log_probs(window[None, :-1], len(window) - 1 - len(targets))
            total -= float(log_probs_PV.gather(-1, targets[:, None]).double().sum())
            first = end
        return total

    @torch.inference_mode()
    def _log_probs(self, tokens_NT: Tensor, start: int) -> Tensor:
        log_probs, features_NTD = [], None
        for objective, block in zip(self._objectives, self._blocks, strict=True):
            traversed = objective.read(block, tokens_NT, start, features_NTD)
            log_probs.append(traversed.log_probs_NPV)
            features_NTD = traversed.features_NTD
        return compose(log_probs)[0]


async def continue_all(
    trained: Trained,
    prefixes: Sequence[bytes],
    options: Callable[[int], GenerateOptions],
    watch: Watch,
) -> list[Output]:
    """Continue every prefix through a chain in memory; only some if it was stopped.

    Args:
        trained: the model, one holder for each block.
        prefixes: what to continue.
        options: for the prefix with this index.
        watch: called after each traversal.
    """
    manifest, leases, services = trained.manifest, [], dict[str, BlockService]()
    for block, weights in enumerate(trained.weights):
        identity, service = tiny_identity(block), LocalBlockService(manifest, block)
        service.adopt(weights, 0)
        services[identity.peer_id] = service
        leases.append(tiny_lease(manifest, identity, block))
    guessing = Block(manifest.model, manifest.objective).eval()
    guessing.load_state_dict(trained.weights[0])
    overview, client = tiny_overview(manifest, leases), InMemoryBlockClient(services)
    places = asyncio.Semaphore(_AT_ONCE)

    async def continue_one(index: int, prefix: bytes) -> Output | None:
        session = ChainSession(manifest, client, lambda: overview)
        # it is an async generator, whose end must not be left to the garbage collector
        new = cast(
            "AsyncGenerator[Chunk, None]",
            generate(session, prefix, options(index), BlockDrafter(guessing)),
        )
        data = b""
        async with places, aclosing(new):
            async for chunk in new:
                data += chunk.data
                if not watch():
                    return None
        return Output(data=data, num_traversals=session.num_traversals)

    found = await asyncio.gather(*(continue_one(*pair) for pair in enumerate(prefixes)))
    return [output for output in found if output is not None]
