"""bt_p2p.swarm.block_messages: requests and replies from strangers, without hivemind."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest
from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.limits import MAX_REQUEST_SEQUENCES
from bt_p2p.protocol.manifest import MASK_TOKEN
from bt_p2p.swarm.block_messages import (
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from bt_p2p.swarm.streams import Frame

REQUEST = ForwardRequest(
    run_id="run-a",
    block=2,
    mode="advance",
    tokens_NT=torch.tensor([[0, 255, MASK_TOKEN, 7], [1, 2, 3, 4]]),
    start=2,
    z_NPZ=torch.arange(12, dtype=torch.float32).view(2, 2, 3),
)
REPLY = ForwardReply(
    log_probs_NPV=torch.log_softmax(torch.arange(1024.0).view(2, 2, 256) % 7, dim=-1),
    z_NPZ=torch.ones(2, 2, 3),
    round_index=5,
    compute_ms=1.5,
)

any_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9)
    | st.sampled_from(["read", "advance", [2, 4], [2, 2, 3], [2, 2, 256]]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


@pytest.mark.parametrize("z_NPZ", [REQUEST.z_NPZ, None], ids=["z", "no z"])
def test_requests_survive_the_wire(z_NPZ):
    """Every field, bit for bit."""
    sent = replace(REQUEST, z_NPZ=z_NPZ)
    got = decode_request(encode_request(sent))
    plain = ("run_id", "block", "mode", "start")
    assert [getattr(sent, name) for name in plain] == [getattr(got, name) for name in plain]
    assert torch.equal(sent.tokens_NT, got.tokens_NT)
    assert torch.int64 == got.tokens_NT.dtype
    assert (z_NPZ is None) == (got.z_NPZ is None)
    assert z_NPZ is None or torch.equal(z_NPZ, got.z_NPZ)


@pytest.mark.parametrize("has_z", [True, False])
def test_replies_survive_the_wire(has_z):
    """Bit for bit, in memory that may be written to."""
    request = REQUEST if has_z else replace(REQUEST, z_NPZ=None)
    sent = REPLY if has_z else replace(REPLY, z_NPZ=None)
    got = decode_reply(encode_reply(sent, request.precision), request)
    assert torch.equal(sent.log_probs_NPV, got.log_probs_NPV)
    assert (5, 1.5) == (got.round_index, got.compute_ms)
    assert not has_z or torch.equal(sent.z_NPZ, got.z_NPZ)
    got.log_probs_NPV.zero_()


def test_views_are_sent_by_value():
    """A slice of a larger tensor travels as what it shows."""
    wide = torch.stack([REQUEST.tokens_NT, REQUEST.tokens_NT + 0], dim=-1)[..., 0]
    assert not wide.is_contiguous()
    got = decode_request(encode_request(replace(REQUEST, tokens_NT=wide)))
    assert torch.equal(REQUEST.tokens_NT, got.tokens_NT)


BAD_REQUEST_FIELDS = [
    ("tokens", [2, 4, 1]),
    ("tokens", [4, 2, 1]),
    ("tokens", [0, 4]),
    ("tokens", [-2, -4]),
    ("tokens", [2, True]),
    ("tokens", [2.0, 4.0]),
    ("tokens", [2, 5]),
    ("tokens", [2**40, 2**40]),
    ("tokens", [MAX_REQUEST_SEQUENCES + 1, 1]),
    ("tokens", None),
    ("z", [2, 2]),
    ("z", [2, 2, 4]),
    ("z", "zzz"),
    ("mode", "write"),
    ("mode", None),
    ("mode", ["read"]),
    ("run", b"run-a"),
    ("run", None),
    ("block", -1),
    ("block", True),
    ("block", 1.0),
    ("block", 2**40),
    ("start", None),
    ("start", "2"),
]


@pytest.mark.parametrize(("name", "value"), BAD_REQUEST_FIELDS)
def test_a_bad_field_of_a_request_is_refused(name, value):
    """Wrong kind, out of range, or not of the size of the body."""
    frame = encode_request(REQUEST)
    with pytest.raises(WireFormatError):
        decode_request(Frame(header=frame.header | {name: value}, body=frame.body))


@pytest.mark.parametrize("name", ["tokens", "mode", "run", "block", "start"])
def test_a_missing_field_of_a_request_is_refused(name):
    """Only z may be missing."""
    frame = encode_request(REQUEST)
    header = {key: value for key, value in frame.header.items() if key != name}
    with pytest.raises(WireFormatError):
        decode_request(Frame(header=header, body=frame.body))


@pytest.mark.parametrize("change", [-1, 1, 4, -4])
def test_a_body_of_another_size_is_refused(change):
    """Of requests and of replies."""
    for frame, decode in (
        (encode_request(REQUEST), decode_request),
        (encode_reply(REPLY, "float32"), lambda spoilt: decode_reply(spoilt, REQUEST)),
    ):
        body = frame.body[:change] if change < 0 else frame.body + bytes(change)
        with pytest.raises(WireFormatError, match="bytes"):
            decode(Frame(header=frame.header, body=body))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_probs_NPV": REPLY.log_probs_NPV[:1]}, "shape"),
        ({"log_probs_NPV": REPLY.log_probs_NPV[:, :1]}, "shape"),
        ({"log_probs_NPV": REPLY.log_probs_NPV[..., :255]}, "shape"),
        ({"log_probs_NPV": torch.full((2, 2, 256), torch.nan)}, "not finite"),
        ({"log_probs_NPV": torch.full((2, 2, 256), -torch.inf)}, "not finite"),
        ({"log_probs_NPV": torch.zeros(2, 2, 256)}, "do not sum to one"),
        ({"log_probs_NPV": REPLY.log_probs_NPV - 1}, "do not sum to one"),
        ({"z_NPZ": None}, "z has shape"),
        ({"z_NPZ": torch.ones(2, 2, 4)}, "z has shape"),
        ({"z_NPZ": torch.full((2, 2, 3), torch.nan)}, "z is not finite"),
        ({"round_index": -1}, "round"),
        ({"round_index": 2**40}, "round"),
    ],
)
def test_a_reply_that_was_not_asked_for_is_refused(changes, message):
    """Distributions of the shape of the request, or an error."""
    with pytest.raises(WireFormatError, match=message):
        decode_reply(encode_reply(replace(REPLY, **changes), "float32"), REQUEST)


def test_z_that_was_not_asked_for_is_refused():
    """A holder cannot make us keep what we did not send."""
    with pytest.raises(WireFormatError, match="z has shape"):
        decode_reply(encode_reply(REPLY, "float32"), replace(REQUEST, z_NPZ=None))


@pytest.mark.parametrize("value", ["soon", None, [1.0], True], ids=repr)
def test_a_compute_time_that_is_none_does_not_spoil_a_reply(value):
    """It is only shown to people."""
    frame = encode_reply(REPLY, "float32")
    got = decode_reply(Frame(header=frame.header | {"compute_ms": value}, body=frame.body), REQUEST)
    assert isinstance(got.compute_ms, float)


@given(
    changes=st.dictionaries(
        st.sampled_from(["tokens", "z", "mode", "run", "block", "start", "log_probs", "round"]),
        any_value,
        max_size=4,
    ),
    body=st.none() | st.binary(max_size=60),
)
def test_arbitrary_fields_raise_nothing_else(changes, body):
    """Requests and replies decode, or raise WireFormatError."""
    for frame, decode in (
        (encode_request(REQUEST), decode_request),
        (encode_reply(REPLY, "float32"), lambda spoilt: decode_reply(spoilt, REQUEST)),
    ):
        spoilt = Frame(header=frame.header | changes, body=frame.body if body is None else body)
        try:
            decode(spoilt)
        except WireFormatError:
            continue
