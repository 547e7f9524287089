"""What a client need not send again, and which cache it names."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest
from bt_p2p.chain.kept_context import KeptContext

WIDTH = 4


def request_for(text: bytes, *, start: int, features_NTD: Tensor | None = None) -> ForwardRequest:
    return ForwardRequest(
        run_id="run",
        block=0,
        mode="read",
        tokens_NT=torch.tensor([list(text)]),
        start=start,
        features_NTD=features_NTD,
    )


def answer(kept: KeptContext, peer_id: str, request: ForwardRequest) -> ForwardRequest:
    """What an honest peer is sent; its answer is remembered."""
    sent = kept.shortened(peer_id, request)
    num_read = sent.tokens_NT.shape[1] - sent.start
    reply = ForwardReply(
        log_probs_NPV=torch.zeros(1, num_read, 256),
        round_index=0,
        compute_ms=1.0,
        features_NTD=torch.ones(1, sent.tokens_NT.shape[1], WIDTH) * (1 + sent.past),
    )
    whole = kept.completed(peer_id, request, sent, reply)
    assert whole.features_NTD is not None
    assert whole.features_NTD.shape == (1, request.tokens_NT.shape[1], WIDTH)
    return sent


def test_only_what_a_peer_has_not_seen_is_sent() -> None:
    kept = KeptContext()
    first = answer(kept, "a", request_for(b"abcd", start=3))
    second = answer(kept, "a", request_for(b"abcdef", start=5))
    assert (first.past, second.past) == (0, 4)
    assert bytes(second.tokens_NT[0].tolist()) == b"ef"
    assert second.start == 1
    assert second.cache_id == first.cache_id


def test_features_of_what_was_seen_before_are_kept() -> None:
    kept = KeptContext()
    answer(kept, "a", request_for(b"abcd", start=3))
    request = request_for(b"abcdef", start=5)
    sent = kept.shortened("a", request)
    reply = ForwardReply(
        log_probs_NPV=torch.zeros(1, 1, 256),
        round_index=0,
        compute_ms=1.0,
        features_NTD=torch.full((1, 2, WIDTH), 5.0),
    )
    whole_NTD = kept.completed("a", request, sent, reply).features_NTD
    assert whole_NTD is not None
    assert whole_NTD[0, :, 0].tolist() == [1, 1, 1, 1, 5, 5]


@pytest.mark.parametrize(
    "reason", ["another peer", "cache lost", "other text", "another batch", "other features"]
)
def test_a_start_from_nothing_gets_a_cache_of_its_own(reason: str) -> None:
    """A request given up, but carried out late, must not spoil the cache in use now."""
    kept = KeptContext()
    features_NTD = torch.zeros(1, 4, WIDTH)
    request = request_for(b"abcd", start=3, features_NTD=features_NTD)
    first = answer(kept, "a", request)
    peer_id = "a"
    if reason == "another peer":
        peer_id = "b"
    elif reason == "cache lost":
        kept.forget(0)
    elif reason == "other text":
        request = request_for(b"xbcd", start=3, features_NTD=features_NTD)
    elif reason == "another batch":
        request = replace(
            request,
            tokens_NT=request.tokens_NT.repeat(2, 1),
            features_NTD=features_NTD.repeat(2, 1, 1),
        )
    else:
        request = replace(request, features_NTD=features_NTD + 1)
    second = kept.shortened(peer_id, request)
    assert second.past == 0
    assert second.tokens_NT.shape == request.tokens_NT.shape
    assert second.cache_id != first.cache_id
