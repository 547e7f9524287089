"""The port through which one block of one holder is asked.

`bt_p2p.swarm.block_rpc` does it over libp2p streams, `bt_p2p.testing.block_rpc` in memory; one
contract test runs on both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

ForwardMode = Literal["read", "advance"]
"""`read`: honest log-probabilities from the context alone; `advance`: one step of generation."""

Progress = Callable[[int, int], None]
"""Called with bytes received and bytes expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardRequest:
    """What a holder is asked to compute."""

    run_id: str
    block: int
    mode: ForwardMode
    tokens_NT: Tensor
    """Int64 [sequences, tokens]: bytes or MASK_TOKEN."""
    start: int
    """First position whose prediction is wanted; positions start..T-1 are answered."""
    z_NPZ: Tensor | None = None
    """Noise state, for sequential objectives in mode `advance`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardReply:
    """What a holder answers."""

    log_probs_NPV: Tensor
    """Float32 [sequences, T - start, 256]."""
    z_NPZ: Tensor | None
    round_index: int
    """Rounds of training behind the weights that answered."""
    compute_ms: float
    """Time the holder says it computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsReply:
    """A block's weights as a replica serves them, whole and with the hash it announced."""

    round_index: int
    data: bytes
    """Safetensors; still to be checked against the block's shapes."""


class BlockClient(Protocol):
    """Asks other peers. All calls raise PeerError kinds that name the peer."""

    async def forward(
        self, peer_id: str, request: ForwardRequest, *, timeout_s: float
    ) -> ForwardReply:
        """Compute one block on some sequences.

        Raises:
            PeerTimeoutError: no answer in time.
            PeerUnreachableError: cannot be dialled, or the connection broke.
            PeerRefusedError: the holder answered with an error.
            WireFormatError: the answer is malformed, of another shape, or not finite.
        """

    async def fetch_weights(
        self,
        peer_id: str,
        *,
        run_id: str,
        block: int,
        max_size_bytes: int,
        timeout_s: float,
        progress: Progress | None = None,
    ) -> WeightsReply:
        """Download a replica's weights; errors as in `forward`."""


class BlockService(Protocol):
    """Answers for the block this peer holds; called from the RPC loop."""

    async def forward(self, request: ForwardRequest) -> ForwardReply:
        """Compute; raises BtError kinds whose message may be shown to the stranger who asked."""

    async def weights(self, run_id: str, block: int) -> WeightsReply:
        """The served weights; raises as `forward`."""
