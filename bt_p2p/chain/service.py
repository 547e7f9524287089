"""Answers requests for the block this peer holds, from weights that only change between rounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bt_p2p.chain.batcher import Batcher
from bt_p2p.chain.block_rpc import (
    ForwardReply,
    ForwardRequest,
    Readiness,
    check_handed_on,
)
from bt_p2p.chain.cache_store import CacheStore
from bt_p2p.chain.snapshot_store import SnapshotStore
from bt_p2p.chain.weights_offer import WeightsOffer
from bt_p2p.clock import Clock, SystemClock
from bt_p2p.errors import BtError, WireFormatError
from bt_p2p.model.block import Block, BlockOutput
from bt_p2p.model.packing import Segment
from bt_p2p.model.wire import encode_tensors
from bt_p2p.objective.base import Traversed
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.limits import (
    CACHE_ID_SIZE_BYTES,
    MAX_ASKER_CACHES_SIZE_BYTES,
    MAX_CACHES_SIZE_BYTES,
    MAX_REQUEST_SEQUENCES,
)
from bt_p2p.protocol.manifest import MASK_TOKEN, RunManifest

_SMOOTHING = 0.2
"""Weight of the last request in the mean of what requests take to compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    request: ForwardRequest
    asker: str


class LocalBlockService:
    """Serves one block; see `block_rpc.BlockService`.

    It keeps a copy of the weights of its own, so that strangers always see a whole round and never
    weights in the middle of a step. All that computes, or touches weights and caches, does so on one
    thread, batch after batch. `adopt` and `served_weights` may be called from any other; they return
    when those who came before have been answered.

    Attributes:
        num_requests: answered so far.
    """

    def __init__(self, manifest: RunManifest, block_index: int, clock: Clock | None = None) -> None:
        """Make the serving copy, on the CPU; it answers nothing until `adopt`.

        Args:
            manifest: the run.
            block_index: which block.
            clock: tells which downloads have ended; of the system if None.
        """
        self._manifest = manifest
        self._run_id = manifest.run_id  # hashed anew at each use
        self._block_index = block_index
        self._objective = make_objective(manifest, block_index)
        self._block = Block(manifest.model, manifest.objective).eval()
        self._caches = CacheStore(
            manifest.model,
            max_size_bytes=MAX_CACHES_SIZE_BYTES,
            max_asker_size_bytes=MAX_ASKER_CACHES_SIZE_BYTES,
        )
        self._batcher = Batcher[_Job, ForwardReply](self._compute)
        self._round_index = -1
        self._snapshots = SnapshotStore(clock or SystemClock())
        self._num_waiting = 0
        self._compute_ms = 0.0
        self.num_requests = 0

    def adopt(self, weights: Mapping[str, Tensor], round_index: int) -> None:
        """Serve these weights from now on.

        Raises:
            ValueError: a tensor is missing or of another shape; what was served stays.
        """

        def swap() -> None:
            self._block.load_weights(weights)
            self._round_index = round_index
            self._snapshots.replace()
            self._caches.clear()  # no answer mixes the weights of two rounds

        self._batcher.between(swap).result()

    def served_weights(self) -> dict[str, Tensor]:
        """Copies of the weights of the last round."""
        return self._batcher.between(self._block.weights).result()

    async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
        """Compute on a worker thread, together with what waits at the same time."""
        self._check_run(request.run_id, request.block)
        check_forward_request(request, self._manifest)
        self._num_waiting += 1
        try:
            reply = await self._batcher.ask(
                _Job(request=request, asker=asker),
                asker=asker,
                num_tokens=request.tokens_NT.numel(),
                key=request.cache_id,
            )
        finally:
            self._num_waiting -= 1
        self.num_requests += 1
        return reply

    def readiness(self, run_id: str, block: int) -> Readiness:
        """How soon a request would be answered."""
        self._check_run(run_id, block)
        return Readiness(
            round_index=self._round_index,
            num_waiting=self._num_waiting,
            compute_ms=self._compute_ms,
        )

    async def weights_offers(
        self, run_id: str, block: int, *, asker: str
    ) -> tuple[WeightsOffer, ...]:
        """Snapshots of the served weights, as safetensors bytes."""
        self._check_run(run_id, block)
        self._snapshots.check_has_room(asker)
        return await asyncio.wrap_future(self._batcher.between(self._offers))

    async def weights_chunk(
        self, run_id: str, block: int, offer_id: bytes, index: int, *, asker: str
    ) -> bytes:
        """A chunk of one of them."""
        self._check_run(run_id, block)
        return self._snapshots.chunk(offer_id, index, asker=asker)

    def _compute(self, jobs: Sequence[_Job]) -> list[ForwardReply | Exception]:
        """One pass over all requests, whatever they ask for; see `batcher.Compute`."""
        started_s = time.perf_counter()
        with torch.inference_mode():
            segments = [self._segment(job) for job in jobs]
            packed = [each for each in segments if isinstance(each, Segment)]
            outputs = iter(self._block.forward_segments(packed) if packed else ())
            traversed = [
                self._traverse(job.request, next(outputs)) if isinstance(each, Segment) else each
                for job, each in zip(jobs, segments, strict=True)
            ]
        compute_ms = 1000 * (time.perf_counter() - started_s)
        self._compute_ms += _SMOOTHING * (compute_ms / len(jobs) - self._compute_ms)
        return [
            ForwardReply(
                log_probs_NPV=each.log_probs_NPV,
                z_NPZ=each.z_NPZ,
                features_NTD=each.features_NTD,
                round_index=self._round_index,
                compute_ms=compute_ms,
            )
            if isinstance(each, Traversed)
            else each
            for each in traversed
        ]

    def _segment(self, job: _Job) -> Segment | BtError:
        """What the block sees of a request, or why it cannot."""
        request, cache = job.request, None
        num_sequences = len(request.tokens_NT)
        if request.cache_id is not None:
            try:
                cache = (
                    self._caches.resume(
                        job.asker, request.cache_id, num_sequences, past=request.past
                    )
                    if request.past
                    else self._caches.open(job.asker, request.cache_id, num_sequences)
                )
            except BtError as exc:
                return exc
        return Segment(tokens_NT=request.tokens_NT, upstream_NTD=request.features_NTD, cache=cache)

    def _traverse(self, request: ForwardRequest, output: BlockOutput) -> Traversed | BtError:
        """What the objective makes of the block's output, or why it cannot."""
        block = _ComputedBlock(self._block, output)
        try:
            if request.mode == "read":
                return self._objective.read(
                    block, request.tokens_NT, request.start, request.features_NTD
                )
            return self._objective.advance(
                block, request.tokens_NT, request.start, request.z_NPZ, request.features_NTD
            )
        except BtError as exc:
            return exc

    def _offers(self) -> tuple[WeightsOffer, ...]:
        return self._snapshots.offers(
            self._round_index, lambda: encode_tensors(self._block.weights())
        )

    def _check_run(self, run_id: str, block: int) -> None:
        if (run_id, block) != (self._run_id, self._block_index):
            raise WireFormatError(
                f"this peer serves block {self._block_index} of run {self._run_id}, "
                f"not block {block} of run {run_id:.64}"
            )
        if self._round_index < 0:
            raise WireFormatError("this peer has no weights to serve yet; ask another")


class _ComputedBlock:
    """A block as an objective sees it, which has computed its request among others already."""

    def __init__(self, block: Block, output: BlockOutput) -> None:
        self._output = output
        self.denoise = block.denoise

    def __call__(
        self,
        tokens_BT: Tensor,  # noqa: ARG002  # the port has them
        upstream_BTD: Tensor | None = None,  # noqa: ARG002
    ) -> BlockOutput:
        return self._output


def check_forward_request(request: ForwardRequest, manifest: RunManifest) -> None:
    """The limits a holder enforces on strangers.

    Raises:
        WireFormatError: names what is out of range.
    """
    tokens = request.tokens_NT
    if tokens.dim() != 2 or tokens.dtype != torch.int64:
        raise WireFormatError(f"tokens are int64 [sequences, tokens], not {tuple(tokens.shape)}")
    num_sequences, num_tokens = tokens.shape
    if not 1 <= num_sequences <= MAX_REQUEST_SEQUENCES:
        raise WireFormatError(
            f"{num_sequences} sequences, allowed are 1 to {MAX_REQUEST_SEQUENCES}"
        )
    if num_tokens < 1 or request.past < 0 or request.past + num_tokens > manifest.model.context:
        raise WireFormatError(
            f"{num_tokens} tokens after {request.past}, allowed are 1 to the context of "
            f"{manifest.model.context}"
        )
    if request.cache_id is None and request.past:
        raise WireFormatError(f"{request.past} tokens before these, but no cache is named")
    if request.cache_id is not None and len(request.cache_id) != CACHE_ID_SIZE_BYTES:
        raise WireFormatError(f"a cache has a name of {CACHE_ID_SIZE_BYTES} bytes")
    if not 0 <= request.start < num_tokens:
        raise WireFormatError(f"start {request.start} is outside the {num_tokens} tokens")
    if int(tokens.min()) < 0 or int(tokens.max()) > MASK_TOKEN:
        raise WireFormatError(f"tokens are bytes or the mask {MASK_TOKEN}")
    num_read = num_tokens - request.start
    z_shape = (num_sequences, num_read, manifest.objective.codebook_dim)
    features_shape = (num_sequences, num_tokens, manifest.model.d_model)
    check_handed_on("z", request.z_NPZ, z_shape)
    check_handed_on("features", request.features_NTD, features_shape)
    if request.takes_from is not None:
        needed = request.features_NTD if manifest.objective.name == "cascade" else request.z_NPZ
        if needed is None:
            raise WireFormatError("the holder before handed on nothing that this block can use")
    if request.features_NTD is not None and manifest.objective.name != "cascade":
        raise WireFormatError(f"objective {manifest.objective.name} takes no features")
