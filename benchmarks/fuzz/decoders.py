"""What is fed: every reader of bytes that a stranger chooses, beside hivemind's own."""

from __future__ import annotations

import asyncio
import functools
import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.fuzz.decoder import Decoder
from benchmarks.fuzz.file_decoders import ADDRESS, file_decoders, tensor_decoders
from benchmarks.fuzz.forms import FRAME, JSON, MSGPACK, PATH
from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest, HandedOn, HandTo, Readiness
from bt_p2p.chain.precision import PRECISIONS
from bt_p2p.chain.weights_offer import ChunkRequest, make_offer
from bt_p2p.errors import ConfigError, ProtocolError, WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.address import (
    check_announced,
    is_peer_id,
    parse_peer_address,
    parse_peer_addresses,
    routable_first,
)
from bt_p2p.protocol.assignment import parse_span
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.lease import Lease, read_leases, sign_lease, verify_lease
from bt_p2p.protocol.limits import (
    MAX_FRAME_HEADER_SIZE_BYTES,
    MAX_MANIFEST_SIZE_BYTES,
    MAX_RECORD_SIZE_BYTES,
    MAX_WEIGHTS_SIZE_BYTES,
    WEIGHTS_CHUNK_SIZE_BYTES,
)
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.membership import (
    check_membership,
    issue_membership,
    membership_of,
    token_of,
)
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
from bt_p2p.swarm.streams import Frame, read_frame
from bt_p2p.swarm.weights_rpc import (
    ask_chunk,
    decode_chunk,
    decode_offers,
    encode_offers,
    offer_and_index,
)
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from node.serve.api_error import ApiError
from node.serve.schema import parse_request

_LEASE_DOMAIN = b"bt-p2p lease\0"
_FRAME_TIMEOUT_S = 5.0


def pure_decoders(folder: Path, loop: asyncio.AbstractEventLoop) -> list[Decoder]:
    """All decoders that do not need hivemind.

    Args:
        folder: where those that read files have them; empty, and theirs alone.
        loop: on which those that read streams run; it is not running, and stays open.
    """
    return [
        *_records(),
        *_addresses(),
        *_messages(loop),
        *tensor_decoders(folder),
        *file_decoders(folder),
        _http(),
    ]


def _records() -> Iterable[Decoder]:
    manifest, identity = tiny_manifest(), tiny_identity(1)
    leases = [_full_lease(manifest, identity), tiny_lease(manifest, identity, None)]
    signed = [sign_lease(lease, identity) for lease in leases]
    yield Decoder(
        name="wire",
        sender="anybody, as the part of another message",
        decode=lambda data: (wire.unpack(data, max_size_bytes=MAX_RECORD_SIZE_BYTES), data),
        messages=(
            wire.pack({"a": [1, -2.5, None, True, b"\xff", "ä"], "b": {"c": []}}),
            *(record.value for record in signed),
        ),
        refuses_with=(WireFormatError,),
        form=MSGPACK,
    )
    yield Decoder(
        name="lease",
        sender="any peer, through the DHT",
        decode=lambda data: verify_lease(identity.peer_id_bytes, data),
        messages=tuple(record.value for record in signed),
        refuses_with=(ProtocolError,),
        form=MSGPACK,
    )
    yield Decoder(
        name="lease, signed",
        sender="any peer, through the DHT",
        decode=lambda data: verify_lease(identity.peer_id_bytes, _sign(data, identity)),
        messages=tuple(wire.pack(lease.model_dump()) for lease in leases),
        refuses_with=(ProtocolError,),
        form=MSGPACK,
    )
    yield Decoder(
        name="lease view",
        sender="any peer, through the DHT",
        decode=lambda data: (
            read_leases(
                [(leases[0].key, {identity.peer_id_bytes: data, data[:64]: data, b"": None})],
                now_s=START_S,
            ).leases
        ),
        messages=(signed[0].value,),
        form=MSGPACK,
    )
    closed = manifest.model_copy(update={"owner": identity.peer_id})
    membership = issue_membership(
        identity, run_id=closed.run_id, peer_id=identity.peer_id, expires_at_s=2**40
    )
    yield Decoder(
        name="membership",
        sender="any peer, through the DHT or an averager",
        decode=functools.partial(_check_token, closed, identity.peer_id),
        messages=(token_of(membership).encode(), membership),
        refuses_with=(ProtocolError,),
        form=MSGPACK,
    )
    manifests = [manifest, closed, tiny_manifest(objective="diffusion"), RunManifest()]
    yield Decoder(
        name="manifest",
        sender="any peer, through the DHT",
        decode=lambda data: RunManifest.from_untrusted_bytes(data, run_id=manifest.run_id),
        messages=(manifest.canonical_bytes(),),
        refuses_with=(WireFormatError,),
        form=JSON,
        max_size_bytes=2 * MAX_MANIFEST_SIZE_BYTES,
    )
    yield Decoder(
        name="manifest of any run",
        sender="any peer, through the DHT",
        decode=_prove_manifest,
        messages=tuple(each.canonical_bytes() for each in manifests),
        refuses_with=(ProtocolError, ConfigError),
        form=JSON,
        max_size_bytes=2 * MAX_MANIFEST_SIZE_BYTES,
    )


def _check_token(manifest: RunManifest, peer_id: str, data: bytes) -> bytes:
    """A token as a user pastes it, or if it is none, a membership as a peer shows it."""
    try:
        membership = membership_of(_text(data))
    except ConfigError:
        membership = data
    check_membership(manifest, peer_id, membership, now_s=START_S)
    return membership


def _full_lease(manifest: RunManifest, identity: PeerIdentity) -> Lease:
    fields = tiny_lease(manifest, identity, 1, round_index=7).model_dump()
    fields |= {"loss": 1.5, "bytes_per_s": 1e4, "partners": 2, "addresses": [ADDRESS]}
    return Lease.model_validate(fields | {"copies": [{"block": 2, "round_index": 6}]})


def _sign(payload: bytes, identity: PeerIdentity) -> bytes:
    """A lease of a hostile peer: its signature is right."""
    return wire.pack([payload, identity.sign(_LEASE_DOMAIN + payload)])


def _prove_manifest(data: bytes) -> RunManifest:
    """Make it canonical first, as a hostile founder of a run would."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise WireFormatError("not JSON") from exc
    built = RunManifest.build(values)
    return RunManifest.from_untrusted_bytes(built.canonical_bytes(), run_id=built.run_id)


def _addresses() -> Iterable[Decoder]:
    texts = (
        ADDRESS,
        f"/ip6/::1/udp/1/quic-v1/p2p/{tiny_identity(2).peer_id}",
        f"/dns4/peer.example.org/tcp/443/p2p/{tiny_identity(3).peer_id}",
    )
    messages = tuple(text.encode() for text in texts)
    yield Decoder(
        name="address",
        sender="whoever gives a user an address",
        decode=lambda data: parse_peer_address(_text(data)),
        messages=messages,
        refuses_with=(ConfigError,),
        form=PATH,
    )
    yield Decoder(
        name="addresses",
        sender="whoever gives a user addresses",
        decode=lambda data: parse_peer_addresses([_text(data)]),
        messages=(*messages, b", ".join(messages)),
        refuses_with=(ConfigError,),
        form=PATH,
    )
    yield Decoder(
        name="address to announce",
        sender="the user",
        decode=_announce,
        messages=(b"/ip4/203.0.113.7/tcp/31337",),
        refuses_with=(ConfigError,),
        form=PATH,
    )
    yield Decoder(
        name="address in a lease",
        sender="any peer, through the DHT",
        decode=lambda data: (routable_first([_text(data), ADDRESS]), is_peer_id(_text(data))),
        messages=messages,
        form=PATH,
    )
    yield Decoder(
        name="span",
        sender="the user",
        decode=lambda data: parse_span(_text(data)),
        messages=(b"0:2", b"3:19"),
        refuses_with=(ConfigError,),
    )


def _announce(data: bytes) -> bytes:
    check_announced(_text(data))
    return data


def _text(data: bytes) -> str:
    """As a command line gives it: what is not UTF-8 becomes lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _messages(loop: asyncio.AbstractEventLoop) -> Iterable[Decoder]:
    plain = ForwardRequest(
        run_id="run-a", block=0, mode="read", tokens_NT=torch.tensor([[1, 256, 3]]), start=1
    )
    full = ForwardRequest(
        run_id="run-a",
        block=2,
        mode="advance",
        tokens_NT=torch.tensor([[0, 255, 256, 7], [1, 2, 3, 4]]),
        start=2,
        z_NPZ=torch.ones(2, 2, 3),
        features_NTD=torch.ones(2, 4, 3),
        cache_id=b"c" * 16,
        past=3,
        hands_to=HandTo(peer_id=tiny_identity(1).peer_id, link_id=b"l" * 16),
    )
    later = ForwardRequest(
        run_id="run-a",
        block=1,
        mode="advance",
        tokens_NT=torch.tensor([[1, 2]]),
        start=1,
        takes_from=b"l" * 16,
        is_last=True,
    )
    reply = ForwardReply(
        log_probs_NPV=torch.log_softmax(torch.arange(512.0).view(1, 2, 256) % 7, dim=-1),
        round_index=5,
        compute_ms=1.5,
    )
    handed = HandedOn(link_id=b"l" * 16, z_NPZ=torch.ones(1, 2, 3))
    readiness = Readiness(round_index=3, num_waiting=2, compute_ms=1.5)
    short = replace(full, precision="int8")
    requests = [encode_request(request) for request in (plain, full, later, short)]
    replies = [encode_reply(reply, precision) for precision in PRECISIONS]
    ready = Frame(header={"op": "ready", "run": "run-a", "block": 0})

    def on_frame(name: str, read: Callable[[Frame], object], valid: Iterable[Frame]) -> Decoder:
        return Decoder(
            name=name,
            sender="any peer, on a stream",
            decode=lambda data: read(_read_one_frame(loop, data)),
            messages=tuple(map(_frame_bytes, valid)),
            refuses_with=(WireFormatError, asyncio.IncompleteReadError),
            form=FRAME,
        )

    yield on_frame("frame", lambda frame: frame, [*requests, ready, *replies])
    yield on_frame("request", decode_request, requests)
    for precision, valid in zip(PRECISIONS, replies, strict=True):
        asked = replace(plain, precision=precision)
        yield on_frame(
            f"reply in {precision}", functools.partial(_read_reply, request=asked), [valid]
        )
    yield on_frame("readiness", decode_readiness, [encode_readiness(readiness)])
    yield on_frame("handed on", decode_handed_on, [encode_handed_on(handed)])
    yield on_frame(
        "bundle",
        lambda frame: [decode_request(part) for part in unbundle(frame)],
        [bundle(requests), bundle(requests[:1])],
    )
    offers = [make_offer(b"x" * size, 3) for size in (10, WEIGHTS_CHUNK_SIZE_BYTES + 1)]
    yield on_frame(
        "weights offers",
        lambda frame: decode_offers(frame, max_size_bytes=MAX_WEIGHTS_SIZE_BYTES),
        [encode_offers(offers)],
    )
    chunk = ChunkRequest(run_id="run-a", block=0, offer=offers[0], index=0)
    yield on_frame("chunk request", offer_and_index, [ask_chunk(chunk)])
    yield on_frame(
        "chunk", lambda frame: decode_chunk(frame, chunk), [Frame(header={}, body=b"x" * 10)]
    )


def _read_reply(frame: Frame, *, request: ForwardRequest) -> ForwardReply:
    return decode_reply(frame, request)


def _frame_bytes(frame: Frame) -> bytes:
    header = wire.pack(frame.header)
    return struct.pack("<IQ", len(header), len(frame.body)) + header + frame.body


def _read_one_frame(loop: asyncio.AbstractEventLoop, data: bytes) -> Frame:
    """What a stream that ends after these bytes gives."""
    reader = asyncio.StreamReader(limit=MAX_FRAME_HEADER_SIZE_BYTES, loop=loop)
    reader.feed_data(data)
    reader.feed_eof()
    return loop.run_until_complete(read_frame(reader, timeout_s=_FRAME_TIMEOUT_S))


def _http() -> Decoder:
    fields = {
        "model": "run",
        "prompt": "Once",
        "max_tokens": 8,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 1,
        "stop": ["\n"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "mode": "sweep",
        "user": "me",
        "n": 1,
        "logit_bias": {},
    }
    return Decoder(
        name="completion request",
        sender="any client of `bt-node serve`",
        decode=parse_request,
        messages=(json.dumps(fields).encode(), b'{"model":"run","prompt":["a"],"logprobs":2}'),
        refuses_with=(ApiError,),
        form=JSON,
    )
