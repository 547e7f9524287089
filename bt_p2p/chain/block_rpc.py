"""The port through which one block of one holder is asked.

`bt_p2p.swarm.block_rpc` does it over libp2p streams, `bt_p2p.testing.block_rpc` in memory; one
contract test runs on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bt_p2p.chain.modes import Precision
from bt_p2p.chain.weights_offer import ChunkRequest, WeightsOffer
from bt_p2p.errors import WireFormatError
from bt_p2p.objective.base import TraversalMode
from bt_p2p.protocol.manifest import VOCAB_SIZE

_LOG_SUM_TOLERANCE = 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class HandTo:
    """Where a holder sends what the next block needs, in a forwarded traversal."""

    peer_id: str
    """Of the next holder."""
    link_id: bytes
    """Secret name under which that holder expects it; drawn by the client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HandedOn:
    """What one holder gives to the next, without the client between them."""

    link_id: bytes
    z_NPZ: Tensor | None = None
    features_NTD: Tensor | None = None
    precision: Precision = "float32"
    """In which they travel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardRequest:
    """What a holder is asked to compute."""

    run_id: str
    block: int
    mode: TraversalMode
    tokens_NT: Tensor
    """Int64 [sequences, tokens]: bytes or MASK_TOKEN."""
    start: int
    """First position whose prediction is wanted; positions start..T-1 are answered."""
    z_NPZ: Tensor | None = None
    """Noise state, when `diffusion` advances."""
    features_NTD: Tensor | None = None
    """Features of the block before, for `cascade`."""
    cache_id: bytes | None = None
    """Ask the holder to keep what it saw, under this secret name; None keeps nothing."""
    past: int = 0
    """Tokens before these that the holder has kept under that name."""
    takes_from: bytes | None = None
    """z and features come from the holder before, as `HandedOn` of this link, not with the request."""
    hands_to: HandTo | None = None
    """z and features go to the next holder, not into the reply."""
    is_last: bool = False
    """z and features go nowhere."""
    precision: Precision = "float32"
    """In which tensors travel, those of the reply and those handed on as well."""

    @property
    def is_answered_whole(self) -> bool:
        """Whether z and features are in the reply."""
        return self.hands_to is None and not self.is_last


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardReply:
    """What a holder answers."""

    log_probs_NPV: Tensor
    """Float32 [sequences, T - start, 256]."""
    round_index: int
    """Rounds of training behind the weights that answered."""
    compute_ms: float
    """Time the holder says it computed, requests of others that it computed with this one included."""
    z_NPZ: Tensor | None = None
    features_NTD: Tensor | None = None


def check_handed_on(name: str, tensor: Tensor | None, expected: tuple[int, ...]) -> None:
    """What one block hands to the next: absent, or finite and of the expected shape.

    Raises:
        WireFormatError: it is neither.
    """
    if tensor is None:
        return
    if tuple(tensor.shape) != expected:
        raise WireFormatError(f"{name} has shape {tuple(tensor.shape)}, expected {expected}")
    if not bool(torch.isfinite(tensor).all()):
        raise WireFormatError(f"{name} is not finite")


def check_reply_shapes(
    request: ForwardRequest,
    *,
    log_probs: tuple[int, ...],
    z: tuple[int, ...] | None,
    features: tuple[int, ...] | None,
) -> None:
    """Whether shapes answer a request; features may have any width.

    Raises:
        WireFormatError: names the tensor, its shape and the expected one.
    """
    num_sequences, num_tokens = request.tokens_NT.shape
    expected = (num_sequences, num_tokens - request.start, VOCAB_SIZE)
    if log_probs != expected:
        raise WireFormatError(f"log-probabilities have shape {log_probs}, expected {expected}")
    z_expected = None
    if request.is_answered_whole and request.z_NPZ is not None:
        z_expected = tuple(request.z_NPZ.shape)
    if z != z_expected:
        raise WireFormatError(f"z has shape {z}, expected {z_expected}")
    if features is not None and features[:-1] != (num_sequences, num_tokens):
        raise WireFormatError(
            f"features have shape {features}, expected {(num_sequences, num_tokens)} in front"
        )


def check_reply_values(
    log_probs_NPV: Tensor, z_NPZ: Tensor | None, features_NTD: Tensor | None
) -> None:
    """Whether an answer holds distributions and finite numbers.

    Raises:
        WireFormatError: it does not.
    """
    named = {"log-probabilities": log_probs_NPV, "z": z_NPZ, "features": features_NTD}
    for name, tensor in named.items():
        # numpy: on few numbers it is several times as fast as torch
        if tensor is not None and not np.isfinite(tensor.numpy()).all():
            raise WireFormatError(f"{name} {'is' if name == 'z' else 'are'} not finite")
    log_probs = log_probs_NPV.numpy()
    with np.errstate(over="ignore", divide="ignore"):
        log_sums = np.log(np.exp(log_probs).sum(axis=-1))
    if np.abs(log_sums).max() > _LOG_SUM_TOLERANCE:
        raise WireFormatError("log-probabilities do not sum to one")


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """How soon a holder would answer, as it says itself."""

    round_index: int
    """Rounds of training behind the weights that would answer."""
    num_waiting: int
    """Requests that are waiting or being computed."""
    compute_ms: float
    """What a request took to compute lately; if several were computed together, its part of that."""

    @property
    def wait_s(self) -> float:
        """Expected time until a new request is computed."""
        return (1 + self.num_waiting) * self.compute_ms / 1000


class BlockClient(Protocol):
    """Asks other peers. All calls raise PeerError kinds that name the peer."""

    async def forward(
        self, peer_id: str, request: ForwardRequest, *, timeout_s: float
    ) -> ForwardReply:
        """Compute one block on some sequences.

        Raises:
            PeerTimeoutError: no answer in time.
            PeerUnreachableError: cannot be dialled, or the connection broke.
            PeerLostCacheError: the holder has not kept the past.
            PeerRefusedError: the holder answered with an error.
            WireFormatError: the answer is malformed, of another shape, or not finite.
        """

    async def ready(self, peer_id: str, *, run_id: str, block: int, timeout_s: float) -> Readiness:
        """Ask whether a holder is there, and how busy; errors as in `forward`."""

    async def hand_on(self, peer_id: str, handed: HandedOn, *, timeout_s: float) -> None:
        """Give another holder what its block needs; errors as in `forward`."""

    async def weights_offers(
        self, peer_id: str, *, run_id: str, block: int, max_size_bytes: int, timeout_s: float
    ) -> tuple[WeightsOffer, ...]:
        """Which snapshots of its weights a holder can give, the newest first.

        Raises:
            PeerBusyError: it gives its weights to as many others as it can.
            PeerError: as in `forward`.
            WireFormatError: malformed, or over `max_size_bytes`.
        """

    async def weights_chunk(
        self, peer_id: str, request: ChunkRequest, *, timeout_s: float
    ) -> bytes:
        """One chunk of a snapshot, which matches its hash.

        Raises:
            PeerBusyError: as in `weights_offers`.
            PeerError: as in `forward`; refused if the snapshot is no longer kept.
            WireFormatError: not the chunk that was asked for.
        """


class BlockService(Protocol):
    """Answers for the block this peer holds; called from the RPC loop."""

    async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
        """Compute for the peer `asker`.

        Raises:
            BtError: of a kind whose message may be shown to the stranger who asked.
        """

    async def weights_offers(
        self, run_id: str, block: int, *, asker: str
    ) -> tuple[WeightsOffer, ...]:
        """Snapshots of the served weights; raises as `forward`."""

    async def weights_chunk(
        self, run_id: str, block: int, offer_id: bytes, index: int, *, asker: str
    ) -> bytes:
        """A chunk of a snapshot; raises as `forward`."""

    def readiness(self, run_id: str, block: int) -> Readiness:
        """How busy it is; raises as `forward`."""
