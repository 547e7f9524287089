"""What every `BlockClient` promises, in memory and over libp2p streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from bt_p2p.chain.block_rpc import (
    ForwardReply,
    ForwardRequest,
    HandedOn,
    Readiness,
)
from bt_p2p.chain.weights_offer import ChunkRequest, make_offer
from bt_p2p.clock import SystemClock
from bt_p2p.errors import (
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnreachableError,
    WireFormatError,
)
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.manifest import MASK_TOKEN, RunManifest
from bt_p2p.testing.tiny import tiny_manifest, tiny_service
from tests.contract.wire import ASKER, NOT_THERE, TIMEOUT_S, FailingService


@pytest.fixture(params=["plain", "cascade", "diffusion"])
def manifest(request) -> RunManifest:
    """A run of each kind of objective."""
    return tiny_manifest(objective=request.param)


def make_request(manifest: RunManifest, *, mode: str = "advance", block: int = 1) -> ForwardRequest:
    """Two sequences of a few bytes that end in masks; z where the objective needs it."""
    generator = torch.Generator().manual_seed(5)
    tokens_NT = torch.randint(0, 256, (2, 9), generator=generator)
    tokens_NT[:, -2:] = MASK_TOKEN
    z_NPZ = None
    if mode == "advance":
        z_NPZ = make_objective(manifest, block).initial_noise(2, 3, generator)
    features_NTD = None
    if manifest.objective.name == "cascade":
        features_NTD = torch.randn(2, 9, manifest.model.d_model, generator=generator)
    return ForwardRequest(
        run_id=manifest.run_id,
        block=block,
        mode=mode,
        tokens_NT=tokens_NT,
        start=6,
        z_NPZ=z_NPZ,
        features_NTD=features_NTD,
    )


class SpoilingService:
    """A holder that answers with a true reply changed by a function."""

    def __init__(self, manifest: RunManifest, spoil: Callable[[ForwardReply], ForwardReply]):
        self._service = tiny_service(manifest, 1)
        self._spoil = spoil

    async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
        return self._spoil(await self._service.forward(request, asker=asker))


@pytest.mark.parametrize("mode", ["read", "advance"])
def test_the_answer_is_exactly_what_the_holder_computes(wire, manifest, mode):
    """Bit for bit, with the round, z and features of the holder."""
    service = tiny_service(manifest, 1, round_index=12)
    request = make_request(manifest, mode=mode)
    expected = asyncio.run(service.forward(request, asker=ASKER))
    reply = wire.run(wire.client.forward(wire.serve(service), request, timeout_s=TIMEOUT_S))
    assert torch.equal(expected.log_probs_NPV, reply.log_probs_NPV)
    for name in ("z_NPZ", "features_NTD"):
        theirs, mine = getattr(expected, name), getattr(reply, name)
        assert (theirs is None) == (mine is None)
        assert theirs is None or torch.equal(theirs, mine)
    assert (12, torch.float32) == (reply.round_index, reply.log_probs_NPV.dtype)
    assert 0 <= reply.compute_ms


def test_the_holder_knows_who_asks(wire):
    """The peer id of the connection, not one from the request."""

    class Noting(SpoilingService):
        async def forward(self, request: ForwardRequest, *, asker: str) -> ForwardReply:
            askers.append(asker)
            return await super().forward(request, asker=asker)

    askers: list[str] = []
    manifest = tiny_manifest()
    peer_id = wire.serve(Noting(manifest, lambda reply: reply))
    wire.run(wire.client.forward(peer_id, make_request(manifest), timeout_s=TIMEOUT_S))
    assert [wire.caller_id] == askers


def test_many_requests_at_once_get_their_own_answers(wire):
    """Answers of parallel requests are not mixed up."""
    manifest = tiny_manifest()
    service = tiny_service(manifest, 1)
    requests = [
        replace(make_request(manifest), tokens_NT=torch.full((1, 9), byte)) for byte in range(12)
    ]
    peer_id = wire.serve(service)

    async def ask_all() -> list[ForwardReply]:
        return await asyncio.gather(
            *(wire.client.forward(peer_id, request, timeout_s=TIMEOUT_S) for request in requests)
        )

    for request, reply in zip(requests, wire.run(ask_all()), strict=True):
        expected = asyncio.run(service.forward(request, asker=ASKER))
        torch.testing.assert_close(expected.log_probs_NPV, reply.log_probs_NPV)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_tensors_may_travel_less_exactly(wire, manifest, precision):
    """The answer is near the exact one, and that of the same request is the same again."""
    service = tiny_service(manifest, 1)
    peer_id = wire.serve(service)
    exact = make_request(manifest)

    def ask(request: ForwardRequest) -> ForwardReply:
        return wire.run(wire.client.forward(peer_id, request, timeout_s=TIMEOUT_S))

    near = ask(replace(exact, precision=precision))
    again = ask(replace(exact, precision=precision))
    expected = ask(exact)
    assert torch.equal(near.log_probs_NPV, again.log_probs_NPV)
    for name in ("log_probs_NPV", "z_NPZ", "features_NTD"):
        found, wanted = getattr(near, name), getattr(expected, name)
        assert (found is None) == (wanted is None)
        if wanted is not None:
            torch.testing.assert_close(wanted, found, rtol=0.02, atol=0.05)
    assert not torch.equal(expected.log_probs_NPV, near.log_probs_NPV)


def test_small_requests_at_once_have_each_its_own_answer(wire):
    """A refusal is that of one of them."""
    manifest = tiny_manifest()
    service = tiny_service(manifest, 1)
    peer_id = wire.serve(service)
    whole = make_request(manifest)
    requests = [
        replace(whole, tokens_NT=whole.tokens_NT[:1, : 7 + index % 3], start=index % 7)
        for index in range(24)
    ]
    wrong = replace(requests[0], block=0)

    async def ask_all() -> list[ForwardReply | BaseException]:
        return await asyncio.gather(
            *(
                wire.client.forward(peer_id, request, timeout_s=TIMEOUT_S)
                for request in [wrong, *requests]
            ),
            return_exceptions=True,
        )

    refused, *replies = wire.run(ask_all())
    assert isinstance(refused, PeerRefusedError)
    for request, reply in zip(requests, replies, strict=True):
        expected = asyncio.run(service.forward(request, asker=ASKER))
        torch.testing.assert_close(expected.log_probs_NPV, reply.log_probs_NPV)


def test_an_unknown_peer_is_unreachable(wire):
    """Every call names the peer that was asked."""
    manifest = tiny_manifest()
    calls = [
        wire.client.forward(NOT_THERE, make_request(manifest), timeout_s=TIMEOUT_S),
        wire.client.weights_offers(
            NOT_THERE,
            run_id=manifest.run_id,
            block=1,
            max_size_bytes=1000,
            timeout_s=TIMEOUT_S,
        ),
        wire.client.weights_chunk(
            NOT_THERE,
            ChunkRequest(run_id="r", block=1, offer=make_offer(b"weights", 1), index=0),
            timeout_s=TIMEOUT_S,
        ),
    ]
    for call in calls:
        with pytest.raises(PeerUnreachableError, match=NOT_THERE[-6:]) as caught:
            wire.run(call)
        assert NOT_THERE == caught.value.peer_id


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (WireFormatError("this peer serves block 4"), "this peer serves block 4"),
        (ValueError("secret path"), "could not compute"),
        (RuntimeError("secret path"), "could not compute"),
    ],
    ids=["ours", "value", "runtime"],
)
def test_a_holders_error_is_a_refusal_that_tells_no_secrets(wire, error, shown):
    """Its own errors are told in its words, others only as a failure."""
    peer_id = wire.serve(FailingService(error))
    with pytest.raises(PeerRefusedError, match=shown) as caught:
        wire.run(wire.client.forward(peer_id, make_request(tiny_manifest()), timeout_s=TIMEOUT_S))
    assert peer_id == caught.value.peer_id
    assert "secret" not in str(caught.value)


def test_a_holder_that_never_answers_times_out(wire):
    """Soon after the deadline, and as a kind of TimeoutError."""
    peer_id = wire.serve(FailingService(None))
    started_s = SystemClock().monotonic_s()
    with pytest.raises(PeerTimeoutError, match=r"within 0\.1 s") as caught:
        wire.run(wire.client.forward(peer_id, make_request(tiny_manifest()), timeout_s=0.1))
    assert peer_id == caught.value.peer_id
    assert 2.0 > SystemClock().monotonic_s() - started_s


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda reply: replace(reply, log_probs_NPV=reply.log_probs_NPV[:, 1:]),
            "shape",
        ),
        (
            lambda reply: replace(reply, log_probs_NPV=reply.log_probs_NPV[..., 1:]),
            "shape",
        ),
        (
            lambda reply: replace(reply, log_probs_NPV=reply.log_probs_NPV * torch.nan),
            "not finite",
        ),
        (
            lambda reply: replace(reply, log_probs_NPV=reply.log_probs_NPV + 1),
            "do not sum to one",
        ),
        (lambda reply: replace(reply, z_NPZ=reply.z_NPZ * torch.inf), "z is not finite"),
        (lambda reply: replace(reply, z_NPZ=reply.z_NPZ[:, 1:]), "z has shape"),
        (lambda reply: replace(reply, z_NPZ=None), "z has shape"),
    ],
    ids=["positions", "bytes", "nan", "sum", "z inf", "z shape", "no z"],
)
def test_a_malformed_answer_is_a_wire_format_error(wire, spoil, message):
    """Whatever a holder sends, the caller gets distributions of the right shape or an error."""
    manifest = tiny_manifest(objective="diffusion")
    peer_id = wire.serve(SpoilingService(manifest, spoil))
    with pytest.raises(WireFormatError, match=message):
        wire.run(wire.client.forward(peer_id, make_request(manifest), timeout_s=TIMEOUT_S))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda features: features * torch.nan, "features are not finite"),
        (lambda features: features[:, 1:], "features have shape"),
        (lambda features: features[:1], "features have shape"),
    ],
    ids=["nan", "tokens", "sequences"],
)
def test_malformed_features_are_a_wire_format_error(wire, spoil, message):
    """They would become the input of the next holder."""
    manifest = tiny_manifest(objective="cascade")

    def spoil_reply(reply):
        return replace(reply, features_NTD=spoil(reply.features_NTD))

    peer_id = wire.serve(SpoilingService(manifest, spoil_reply))
    with pytest.raises(WireFormatError, match=message):
        wire.run(wire.client.forward(peer_id, make_request(manifest), timeout_s=TIMEOUT_S))


@pytest.mark.parametrize("is_handed_first", [True, False], ids=["handed first", "asked first"])
def test_input_may_come_from_another_holder(wire, is_handed_first):
    """Whichever comes first, the answer is that of a request that brings its input itself."""
    manifest = tiny_manifest(objective="cascade")
    service = tiny_service(manifest, 1)
    peer_id = wire.serve(service)
    whole = make_request(manifest)
    handed = HandedOn(link_id=b"l" * 16, features_NTD=whole.features_NTD)
    linked = replace(whole, features_NTD=None, takes_from=handed.link_id, is_last=True)

    async def ask() -> ForwardReply:
        calls = [
            wire.client.hand_on(peer_id, handed, timeout_s=TIMEOUT_S),
            wire.client.forward(peer_id, linked, timeout_s=TIMEOUT_S),
        ]
        first, second = calls if is_handed_first else reversed(calls)
        running = asyncio.create_task(first)
        await asyncio.sleep(0.2)
        answers = [await second, await running]
        return next(answer for answer in answers if answer is not None)

    reply = wire.run(ask())
    expected = asyncio.run(service.forward(whole, asker=ASKER))
    assert torch.equal(expected.log_probs_NPV, reply.log_probs_NPV)
    assert (None, None) == (reply.z_NPZ, reply.features_NTD)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (None, "nothing that this block can use"),
        (torch.zeros(2, 9, 17), "features has shape"),
        (torch.full((2, 9, 16), torch.nan), "features is not finite"),
    ],
    ids=["nothing", "width", "nan"],
)
def test_what_a_holder_hands_on_is_checked(wire, features, message):
    """It is as little to be trusted as a client."""
    manifest = tiny_manifest(objective="cascade")
    peer_id = wire.serve(tiny_service(manifest, 1))
    handed = HandedOn(link_id=b"l" * 16, features_NTD=features)
    linked = replace(make_request(manifest), features_NTD=None, takes_from=handed.link_id)

    async def ask() -> ForwardReply:
        await wire.client.hand_on(peer_id, handed, timeout_s=TIMEOUT_S)
        return await wire.client.forward(peer_id, linked, timeout_s=TIMEOUT_S)

    with pytest.raises(PeerRefusedError, match=message):
        wire.run(ask())


def test_a_link_without_a_proper_name_is_refused(wire):
    """Names are secrets of a fixed size."""
    peer_id = wire.serve(tiny_service(tiny_manifest(), 1))
    with pytest.raises((PeerRefusedError, WireFormatError), match="a link has a name of 16 bytes"):
        wire.run(wire.client.hand_on(peer_id, HandedOn(link_id=b"short"), timeout_s=TIMEOUT_S))


def test_handing_on_to_an_unknown_peer_names_it(wire):
    """As for a request."""
    with pytest.raises(PeerUnreachableError, match=NOT_THERE[-6:]):
        wire.run(wire.client.hand_on(NOT_THERE, HandedOn(link_id=b"l" * 16), timeout_s=TIMEOUT_S))


def test_a_request_out_of_range_is_refused_by_the_holder(wire):
    """Tokens beyond the mask, more tokens than the context, another run, another block."""
    manifest = tiny_manifest()
    peer_id = wire.serve(tiny_service(manifest, 1))
    good = make_request(manifest)
    bad = [
        replace(good, tokens_NT=good.tokens_NT + 300),
        replace(good, tokens_NT=torch.zeros(1, 17, dtype=torch.int64)),
        replace(good, run_id=tiny_manifest(seed=1).run_id),
        replace(good, block=2),
        replace(good, start=9),
    ]
    for request in bad:
        with pytest.raises(PeerRefusedError):
            wire.run(wire.client.forward(peer_id, request, timeout_s=TIMEOUT_S))
    wire.run(wire.client.forward(peer_id, good, timeout_s=TIMEOUT_S))


def test_a_holder_says_how_busy_it_is(wire):
    """Its round, and what requests took to compute; another block is refused."""
    manifest = tiny_manifest()
    service = tiny_service(manifest, 1, round_index=4)
    peer_id = wire.serve(service)

    def ask(block):
        return wire.run(
            wire.client.ready(peer_id, run_id=manifest.run_id, block=block, timeout_s=TIMEOUT_S)
        )

    assert Readiness(round_index=4, num_waiting=0, compute_ms=0.0) == ask(1)
    wire.run(wire.client.forward(peer_id, make_request(manifest), timeout_s=TIMEOUT_S))
    assert 0 < ask(1).compute_ms < 1000
    with pytest.raises(PeerRefusedError, match="serves block 1"):
        ask(2)


def test_an_absent_holder_says_nothing(wire):
    """The error names it."""
    with pytest.raises(PeerUnreachableError, match=NOT_THERE[-6:]):
        wire.run(wire.client.ready(NOT_THERE, run_id="r", block=0, timeout_s=TIMEOUT_S))
