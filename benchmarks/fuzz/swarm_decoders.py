"""What is fed, of hivemind's own readers and of those that hivemind calls; harden() first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
from hivemind.compression.serialization import deserialize_torch_tensor, serialize_torch_tensor
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.proto import averaging_pb2, dht_pb2, runtime_pb2
from hivemind.utils import get_dht_time
from hivemind.utils.serializer import MSGPackSerializer

from benchmarks.fuzz.decoder import Decoder
from benchmarks.fuzz.forms import MSGPACK
from bt_p2p.errors import RoundFailedError, WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.keys import RUNS_KEY
from bt_p2p.protocol.lease import sign_lease
from bt_p2p.swarm.averager import HivemindPendingAverage
from bt_p2p.swarm.hardening import harden
from bt_p2p.swarm.validators import RecordValidator, decodable_manifests, key_hash
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest

_ANY_FAULT = (Exception,)
"""hivemind answers whatever its readers raise; only the process must go on."""


def swarm_decoders() -> list[Decoder]:
    """All decoders that need hivemind; the mends are applied."""
    harden()
    return [*_records(), *_hivemind(), _report()]


def _records() -> Iterable[Decoder]:
    manifest, identity = tiny_manifest(), tiny_identity(1)
    validator = RecordValidator()
    validator.add_run(manifest.run_id, manifest.model.num_blocks)
    now_s = get_dht_time()
    signed = sign_lease(tiny_lease(manifest, identity, now_s=now_s), identity)
    records = [
        [key_hash(signed.key), wire.pack(signed.subkey), wire.pack(signed.value), 30.0],
        [
            key_hash(RUNS_KEY),
            wire.pack(manifest.run_id),
            wire.pack(manifest.canonical_bytes()),
            30.0,
        ],
        [key_hash("other"), wire.pack("subkey"), wire.pack(1.5), 30.0],
    ]

    def validate(data: bytes) -> bool:
        """Msgpack of key, subkey, value and lifetime stands for a request to store."""
        match wire.unpack(data, max_size_bytes=len(data)):
            case [bytes(key), bytes(subkey), bytes(value), int(ttl_s) | float(ttl_s)]:
                expires_at_s = now_s + ttl_s if math.isfinite(ttl_s) else float(ttl_s)
                return validator.accepts(
                    key=key, subkey=subkey, value=value, expires_at_s=expires_at_s
                )
        raise WireFormatError("not a request to store")

    yield Decoder(
        name="record to store",
        sender="any peer, through the DHT",
        decode=validate,
        messages=tuple(map(wire.pack, records)),
        refuses_with=(WireFormatError,),
        form=MSGPACK,
    )
    yield Decoder(
        name="list of runs",
        sender="any peer, through the DHT",
        decode=lambda data: decodable_manifests([(manifest.run_id, data), (data, data)]) or None,
        messages=(manifest.canonical_bytes(),),
    )


def _report() -> Decoder:
    """What members of a group tell each other before they average."""
    pending: Any = SimpleNamespace(_averager=SimpleNamespace(peer_id="us"))
    return Decoder(
        name="partner report",
        sender="a member of a group, while averaging",
        decode=lambda data: HivemindPendingAverage._read_reports(
            pending, {tiny_identity(1).peer_id: data}
        ),
        messages=(wire.pack({"round": 3}),),
        refuses_with=(RoundFailedError,),
        form=MSGPACK,
    )


def _hivemind() -> Iterable[Decoder]:
    dictionary = DictionaryDHTValue()
    dictionary.store("subkey", b"value", get_dht_time() + 60)
    report = MSGPackSerializer.dumps([1.0, 0, MSGPackSerializer.dumps(wire.pack({"round": 3}))])
    yield Decoder(
        name="hivemind msgpack",
        sender="any peer, through the DHT or an averager",
        decode=lambda data: (MSGPackSerializer.loads(data), data),
        messages=(
            MSGPackSerializer.dumps((1, "a", (2, b"b"))),
            MSGPackSerializer.dumps(dictionary),
            report,
        ),
        refuses_with=_ANY_FAULT,
        form=MSGPACK,
    )
    tensor = torch.arange(6.0).view(2, 3)
    compressions = runtime_pb2.CompressionType
    kinds = (compressions.NONE, compressions.FLOAT16)
    tensors = [serialize_torch_tensor(tensor, kind) for kind in kinds]
    yield Decoder(
        name="hivemind tensor",
        sender="a member of a group, while averaging",
        decode=lambda data: deserialize_torch_tensor(runtime_pb2.Tensor.FromString(data)),
        messages=tuple(each.SerializeToString() for each in tensors),
        refuses_with=_ANY_FAULT,
    )
    join = averaging_pb2.JoinRequest(schema_hash=b"hash", expiration=1e9, gather=report)
    store = dht_pb2.StoreRequest(keys=[b"k" * 20], subkeys=[b"s"], values=[b"v"], in_cache=[False])
    yield Decoder(
        name="hivemind messages",
        sender="any peer, to a handler",
        decode=lambda data: (
            averaging_pb2.JoinRequest.FromString(data),
            dht_pb2.StoreRequest.FromString(data),
        ),
        messages=(join.SerializeToString(), store.SerializeToString()),
        refuses_with=_ANY_FAULT,
    )
