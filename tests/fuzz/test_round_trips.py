"""Whatever we send ourselves: it arrives as it was."""

from __future__ import annotations

import asyncio
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest, HandedOn, HandTo, Readiness
from bt_p2p.model.wire import decode_tensors, encode_tensors
from bt_p2p.protocol.lease import Lease, sign_lease, verify_lease
from bt_p2p.protocol.limits import LINK_ID_SIZE_BYTES, MAX_SPAN_BLOCKS
from bt_p2p.swarm.block_messages import (
    decode_handed_on,
    decode_readiness,
    decode_reply,
    decode_request,
    encode_handed_on,
    encode_readiness,
    encode_reply,
    encode_request,
)
from bt_p2p.swarm.bundles import bundle, unbundle
from bt_p2p.swarm.streams import Frame, read_frame, write_frame
from bt_p2p.testing.tiny import tiny_identity

TIMEOUT_S = 10.0
IDENTITY = tiny_identity(1)
quick = settings(max_examples=60, derandomize=True, deadline=None, database=None)
rounds = st.integers(0, 2**40 - 1)
names = st.binary(min_size=LINK_ID_SIZE_BYTES, max_size=LINK_ID_SIZE_BYTES)
times = st.floats(0, 1e10)
leases = st.builds(
    Lease,
    run_id=st.text(max_size=16),
    peer_id=st.just(IDENTITY.peer_id),
    boot_id=st.text(max_size=8),
    block=st.none() | st.integers(0, 255),
    state=st.sampled_from(["joining", "training", "leaving"]),
    round_index=rounds,
    loss=st.none() | st.floats(0, 1e6),
    bytes_per_s=st.floats(0, 1e12),
    partners=st.integers(0, 100_000),
    addresses=st.lists(st.text(max_size=50), max_size=4),
    copies=st.lists(
        st.fixed_dictionaries({"block": st.integers(0, 255), "round_index": rounds}),
        max_size=MAX_SPAN_BLOCKS - 1,
    ),
    issued_at_s=times,
    expires_at_s=st.just(0.0),
)


def tensors(*shape: int) -> st.SearchStrategy:
    """Finite floats of a shape."""
    seeds = st.integers(0, 2**31)
    return seeds.map(lambda seed: torch.randn(shape, generator=torch.Generator().manual_seed(seed)))


@st.composite
def requests(draw: st.DrawFn) -> ForwardRequest:
    """Any request that a client of ours may send."""
    num, length, width = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    start = draw(st.integers(0, length - 1))
    tokens = draw(st.lists(st.integers(0, 256), min_size=num * length, max_size=num * length))
    return ForwardRequest(
        run_id=draw(st.text(max_size=40)),
        block=draw(st.integers(0, 255)),
        mode=draw(st.sampled_from(["read", "advance"])),
        tokens_NT=torch.tensor(tokens).view(num, length),
        start=start,
        z_NPZ=draw(st.none() | tensors(num, length - start, width)),
        features_NTD=draw(st.none() | tensors(num, length, width)),
        cache_id=draw(st.none() | names),
        past=draw(st.integers(0, 2**30)),
        takes_from=draw(st.none() | names),
        hands_to=draw(st.none() | names.map(lambda n: HandTo(peer_id="12D3", link_id=n))),
        is_last=draw(st.booleans()),
    )


def is_same(expected: object, actual: object) -> bool:
    """Field by field; tensors element by element."""
    for field in fields(expected):  # type: ignore[arg-type]
        one, other = getattr(expected, field.name), getattr(actual, field.name)
        if isinstance(one, torch.Tensor):
            if not torch.equal(one, other):
                return False
        elif one != other:
            return False
    return True


@given(leases)
@quick
def test_leases_arrive_as_they_were_signed(lease) -> None:
    """Every field, and under the key that they name."""
    signed = sign_lease(lease, IDENTITY)
    assert lease == verify_lease(signed.subkey, signed.value)
    assert lease.key == signed.key


@given(requests())
@quick
def test_requests_arrive_as_they_were_sent(request) -> None:
    """Exactly, in float32."""
    assert is_same(request, decode_request(encode_request(request)))


@given(requests(), rounds)
@quick
def test_replies_arrive_as_they_were_sent(request, round_index) -> None:
    """With what is expected of that request."""
    num, length = request.tokens_NT.shape
    reply = ForwardReply(
        log_probs_NPV=torch.log_softmax(torch.randn(num, length - request.start, 256), dim=-1),
        round_index=round_index,
        compute_ms=2.5,
        z_NPZ=request.z_NPZ if request.is_answered_whole else None,
        features_NTD=request.features_NTD,
    )
    assert is_same(reply, decode_reply(encode_reply(reply, "float32"), request))


@given(names, st.none() | tensors(1, 2, 3), st.none() | tensors(2, 3, 1))
@quick
def test_what_is_handed_on_arrives_as_it_was(link_id, z_NPZ, features_NTD) -> None:
    """With or without either tensor."""
    handed = HandedOn(link_id=link_id, z_NPZ=z_NPZ, features_NTD=features_NTD)
    assert is_same(handed, decode_handed_on(encode_handed_on(handed)))


@given(rounds, st.integers(0, 10_000), st.floats(0, 1e6))
@quick
def test_readiness_arrives_as_it_was(round_index, num_waiting, compute_ms) -> None:
    """All of its numbers."""
    ready = Readiness(round_index=round_index, num_waiting=num_waiting, compute_ms=compute_ms)
    assert ready == decode_readiness(encode_readiness(ready))


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=50)), min_size=1, max_size=8))
@quick
def test_bundles_hold_the_frames_that_were_put_in(parts) -> None:
    """In their order."""
    frames = [Frame(header={"n": number}, body=body) for number, body in parts]
    assert frames == unbundle(bundle(frames))


@given(
    st.dictionaries(
        st.text(max_size=5), st.integers().filter(lambda n: -(2**63) <= n < 2**63), max_size=4
    ),
    st.binary(max_size=300),
)
@quick
def test_frames_arrive_as_they_were_written(header, body) -> None:
    """Over a stream."""

    class Pipe:
        """A writer whose bytes a reader gets."""

        def __init__(self, reader: asyncio.StreamReader) -> None:
            self._reader = reader

        def write(self, data: bytes) -> None:
            self._reader.feed_data(bytes(data))

        async def drain(self) -> None:
            """Everything is there at once."""

    async def main() -> Frame:
        reader = asyncio.StreamReader()
        await write_frame(Pipe(reader), Frame(header=header, body=body), timeout_s=TIMEOUT_S)
        return await read_frame(reader, timeout_s=TIMEOUT_S)

    assert Frame(header=header, body=body) == asyncio.run(main())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
@given(st.lists(st.integers(0, 3), max_size=3))
@quick
def test_weights_arrive_as_they_were_sent(dtype, shape) -> None:
    """Of any shape, empty ones too."""
    sent = {"a": torch.ones(tuple(shape), dtype=dtype), "b.c": torch.arange(3)}
    expected = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in sent.items()}
    arrived = decode_tensors(encode_tensors(sent), expected)
    assert {name: tensor.tolist() for name, tensor in sent.items()} == {
        name: tensor.tolist() for name, tensor in arrived.items()
    }
