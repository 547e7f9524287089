"""bt_p2p.chain.service: what a holder does for strangers, and what not."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest
import torch

from bt_p2p.chain.block_rpc import ForwardRequest
from bt_p2p.chain.service import LocalBlockService, check_forward_request
from bt_p2p.chain.weights_offer import make_offer
from bt_p2p.errors import WireFormatError
from bt_p2p.model.wire import encode_tensors
from bt_p2p.protocol.limits import MAX_REQUEST_SEQUENCES
from bt_p2p.protocol.manifest import MASK_TOKEN
from bt_p2p.testing.tiny import tiny_manifest, tiny_service, tiny_weights

ASKER = "somebody"
PLAIN = tiny_manifest()
DIFFUSION = tiny_manifest(objective="diffusion")
CONTEXT = PLAIN.model.context
CODEBOOK_DIM = PLAIN.objective.codebook_dim


def request_of(tokens=((1, 2, 3),), start: int = 0, **fields) -> ForwardRequest:
    """A request for block 1 of the plain run."""
    tokens_NT = tokens if isinstance(tokens, torch.Tensor) else torch.tensor(tokens)
    values = {"run_id": PLAIN.run_id, "block": 1, "mode": "read", **fields}
    return ForwardRequest(tokens_NT=tokens_NT, start=start, **values)


def zeros(*shape: int, dtype=torch.int64) -> torch.Tensor:
    """Tokens of a shape."""
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        (request_of(zeros(3)), r"tokens are int64 \[sequences, tokens\]"),
        (request_of(zeros(1, 3, dtype=torch.int32)), "tokens are int64"),
        (request_of(zeros(1, 3, dtype=torch.float32)), "tokens are int64"),
        (request_of(zeros(0, 3)), "0 sequences"),
        (request_of(zeros(MAX_REQUEST_SEQUENCES + 1, 1)), "65 sequences, allowed are 1 to 64"),
        (request_of(zeros(1, 0)), "0 tokens"),
        (
            request_of(zeros(1, CONTEXT + 1)),
            "17 tokens after 0, allowed are 1 to the context of 16",
        ),
        (request_of(start=3), "start 3 is outside the 3 tokens"),
        (request_of(start=-1), "start -1 is outside the 3 tokens"),
        (request_of([[0, -1]]), f"bytes or the mask {MASK_TOKEN}"),
        (request_of([[0, MASK_TOKEN + 1]]), f"bytes or the mask {MASK_TOKEN}"),
        (request_of(z_NPZ=torch.zeros(1, 3, CODEBOOK_DIM + 1)), "z has shape"),
        (request_of(start=1, z_NPZ=torch.zeros(1, 3, CODEBOOK_DIM)), "z has shape"),
        (request_of(z_NPZ=torch.zeros(3)), "z has shape"),
        (request_of(z_NPZ=torch.full((1, 3, CODEBOOK_DIM), math.nan)), "z is not finite"),
        (request_of(z_NPZ=torch.full((1, 3, CODEBOOK_DIM), math.inf)), "z is not finite"),
        (request_of(run_id=DIFFUSION.run_id), "not block 1 of run"),
        (request_of(run_id="x" * 5000), "this peer serves block 1"),
        (request_of(block=0), "not block 0 of run"),
    ],
)
def test_requests_out_of_range_are_refused(request_: ForwardRequest, part: str) -> None:
    """Named, computed by nobody, counted as no answer."""
    service = tiny_service(PLAIN, 1)
    with pytest.raises(WireFormatError, match=part) as caught:
        asyncio.run(service.forward(request_, asker=ASKER))
    assert (0, True) == (service.num_requests, len(str(caught.value)) < 250)


@pytest.mark.parametrize(
    "request_",
    [
        request_of(zeros(MAX_REQUEST_SEQUENCES, CONTEXT)),
        request_of([[0, 255, MASK_TOKEN]], start=2),
        request_of(start=1, z_NPZ=torch.zeros(1, 2, CODEBOOK_DIM)),
    ],
)
def test_the_limits_themselves_are_allowed(request_: ForwardRequest) -> None:
    """As many sequences and tokens as stated, and the mask."""
    check_forward_request(request_, PLAIN)


@pytest.mark.parametrize("manifest", [PLAIN, DIFFUSION], ids=["plain", "diffusion"])
@pytest.mark.parametrize("mode", ["read", "advance"])
def test_answers_have_the_shape_that_was_asked_for(manifest, mode) -> None:
    """Distributions for positions start..T-1, z only where it is handed on."""
    service = tiny_service(manifest, 1, round_index=4)
    z_NPZ = torch.zeros(2, 2, CODEBOOK_DIM) if manifest is DIFFUSION else None
    asked = request_of(
        [[1, 2, 3], [4, 5, 6]], start=1, run_id=manifest.run_id, mode=mode, z_NPZ=z_NPZ
    )
    reply = asyncio.run(service.forward(asked, asker=ASKER))
    assert ((2, 2, 256), 4, 1) == (
        tuple(reply.log_probs_NPV.shape),
        reply.round_index,
        service.num_requests,
    )
    hands_on = manifest is DIFFUSION and mode == "advance"
    assert hands_on == (reply.z_NPZ is not None)


def test_diffusion_refuses_to_advance_without_z() -> None:
    """The objective says what it needs."""
    service = tiny_service(DIFFUSION, 1)
    with pytest.raises(WireFormatError, match="needs z of shape"):
        asyncio.run(
            service.forward(request_of(run_id=DIFFUSION.run_id, mode="advance"), asker=ASKER)
        )


def test_nothing_is_served_before_weights_are_there() -> None:
    """Random weights are nobody's model."""
    service = LocalBlockService(PLAIN, 1)
    with pytest.raises(WireFormatError, match="no weights to serve yet; ask another"):
        asyncio.run(service.forward(request_of(), asker=ASKER))
    with pytest.raises(WireFormatError, match="no weights to serve yet"):
        asyncio.run(service.weights_offers(PLAIN.run_id, 1, asker=ASKER))


def test_adopting_swaps_whole_weights() -> None:
    """Every tensor, the round, what is offered, and the answers."""
    service = tiny_service(PLAIN, 1)
    before = asyncio.run(service.forward(request_of(), asker=ASKER))
    other = tiny_weights(PLAIN, 2)

    service.adopt(other, 9)

    after = asyncio.run(service.forward(request_of(), asker=ASKER))
    [offer] = asyncio.run(service.weights_offers(PLAIN.run_id, 1, asker=ASKER))
    served = service.served_weights()
    assert all(torch.equal(served[name], other[name]) for name in other)
    assert (9, make_offer(encode_tensors(other), 9)) == (after.round_index, offer)
    assert not torch.equal(before.log_probs_NPV, after.log_probs_NPV)


def test_the_serving_copy_is_its_own() -> None:
    """Training on, or changing what was handed out, does not change what is served."""
    service = LocalBlockService(PLAIN, 1)
    weights = tiny_weights(PLAIN, 1)
    service.adopt(weights, 0)
    for tensor in (*weights.values(), *service.served_weights().values()):
        tensor.fill_(7.0)
    expected = tiny_weights(PLAIN, 1)
    assert all(
        torch.equal(expected[name], found) for name, found in service.served_weights().items()
    )


@pytest.mark.parametrize("spoil", ["missing", "shape"])
def test_weights_that_do_not_fit_change_nothing(spoil: str) -> None:
    """Half a round is never served."""
    service = tiny_service(PLAIN, 1, round_index=3)
    weights = tiny_weights(PLAIN, 2)
    last = list(weights)[-1]
    if spoil == "missing":
        del weights[last]
    else:
        weights[last] = torch.zeros(3, 5, 7)
    with pytest.raises(ValueError, match=f"do not fit the block: {last}"):
        service.adopt(weights, 4)
    expected = tiny_weights(PLAIN, 1)
    assert all(
        torch.equal(expected[name], found) for name, found in service.served_weights().items()
    )
    assert 3 == service.readiness(PLAIN.run_id, 1).round_index


def test_requests_do_not_change_the_weights_or_each_other() -> None:
    """The same question has the same answer."""
    service = tiny_service(PLAIN, 1)

    async def ask_twice():
        return await asyncio.gather(
            service.forward(request_of(), asker=ASKER), service.forward(request_of(), asker=ASKER)
        )

    first, second = asyncio.run(ask_twice())
    torch.testing.assert_close(first.log_probs_NPV, second.log_probs_NPV)
    assert 2 == service.num_requests
    assert first != replace(first, round_index=5)
