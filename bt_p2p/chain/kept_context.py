"""What each holder has seen of a client's text, so that only the rest is sent."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest
from bt_p2p.protocol.limits import CACHE_ID_SIZE_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    peer_id: str
    cache_id: bytes
    tokens_NT: Tensor
    given_NTD: Tensor | None
    """Features of the block before that came with them."""
    features_NTD: Tensor | None
    """What the block made of them, for the block after it."""


class KeptContext:
    """The client's side of the holders' caches, one for each block.

    A holder that has lost its cache, or another holder of the same block, is simply sent
    everything: what the block before handed on is kept here. Whatever starts from nothing gets a
    cache of its own, so that a request given up, but carried out late, spoils none in use.
    """

    def __init__(self) -> None:
        """Nobody has seen anything."""
        self._seen: dict[int, _Seen] = {}

    def shortened(
        self, peer_id: str, request: ForwardRequest, *, at_most: int | None = None
    ) -> ForwardRequest:
        """The request without the tokens, or the first `at_most` of them, that this peer has kept."""
        past = self.num_kept(peer_id, request)
        if at_most is not None:
            past = min(past, at_most)
        cache_id = (
            self._seen[request.block].cache_id if past else secrets.token_bytes(CACHE_ID_SIZE_BYTES)
        )
        features_NTD = request.features_NTD
        return replace(
            request,
            tokens_NT=request.tokens_NT[:, past:],
            start=request.start - past,
            features_NTD=None if features_NTD is None else features_NTD[:, past:],
            cache_id=cache_id,
            past=past,
        )

    def completed(
        self, peer_id: str, request: ForwardRequest, sent: ForwardRequest, reply: ForwardReply
    ) -> ForwardReply:
        """Remember what the peer saw; the reply with the features of all tokens.

        Args:
            peer_id: who answered.
            request: as it was before it was shortened.
            sent: as the peer got it.
            reply: to `sent`.
        """
        assert sent.cache_id is not None
        features_NTD = reply.features_NTD
        if features_NTD is not None and sent.past:
            before_NTD = self._seen[request.block].features_NTD
            assert before_NTD is not None
            features_NTD = torch.cat((before_NTD[:, : sent.past], features_NTD), dim=1)
        self._seen[request.block] = _Seen(
            peer_id=peer_id,
            cache_id=sent.cache_id,
            tokens_NT=request.tokens_NT,
            given_NTD=request.features_NTD,
            features_NTD=features_NTD,
        )
        return replace(reply, features_NTD=features_NTD)

    def forget(self, block: int) -> None:
        """The holder of a block has lost its cache."""
        self._seen.pop(block, None)

    def forget_all(self) -> None:
        """Send everything again, to everybody."""
        self._seen.clear()

    def num_kept(self, peer_id: str, request: ForwardRequest) -> int:
        """Tokens in front that the peer has kept; those that are to be read are sent anyhow."""
        seen = self._seen.get(request.block)
        if seen is None or seen.peer_id != peer_id or len(seen.tokens_NT) != len(request.tokens_NT):
            return 0
        longest = min(seen.tokens_NT.shape[1], request.start)
        is_same_T = (seen.tokens_NT[:, :longest] == request.tokens_NT[:, :longest]).all(dim=0)
        if seen.given_NTD is not None and request.features_NTD is not None:
            # another replica of the block before may have answered this time
            is_same_NTD = seen.given_NTD[:, :longest] == request.features_NTD[:, :longest]
            is_same_T &= is_same_NTD.all(dim=2).all(dim=0)
        return longest if bool(is_same_T.all()) else int(is_same_T.int().argmin())
