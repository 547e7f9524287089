"""Readers of tensors and of files, which a stranger may have written."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import safetensors.torch
import torch

from benchmarks.fuzz.decoder import Decoder
from benchmarks.fuzz.forms import JSON, SAFETENSORS
from bt_p2p.errors import CheckpointError, ConfigError, WireFormatError
from bt_p2p.model.checkpoint import load_checkpoint, save_checkpoint
from bt_p2p.model.wire import decode_tensors, encode_tensors, tensors_digest
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_manifest, tiny_weights
from node.export import FACTS_NAME, ModelExport, load_export, save_export
from node.manifests import read_manifest
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.snapshot import SNAPSHOT_NAME, NodeSnapshot, read_snapshot
from node.state_dir import StateDir
from node.tui.snapshot_text import status_document, status_text

ADDRESS = f"/ip4/203.0.113.7/tcp/31337/p2p/{tiny_identity(1).peer_id}"


def tensor_decoders(folder: Path) -> Iterable[Decoder]:
    """Weights on the wire, and in files."""
    tensors = {"a.weight": torch.ones(2, 3), "b": torch.arange(3), "c": torch.ones(2).half()}
    expected = {name: (tuple(each.shape), each.dtype) for name, each in tensors.items()}
    yield Decoder(
        name="weights",
        sender="a replica",
        decode=lambda data: decode_tensors(data, expected),
        messages=(encode_tensors(tensors),),
        refuses_with=(WireFormatError,),
        form=SAFETENSORS,
    )
    path = folder / "checkpoint"
    save_checkpoint(path, tensors, {"round": "3"})
    yield Decoder(
        name="checkpoint",
        sender="whoever gives a user a file",
        decode=functools.partial(_load_checkpoint, path),
        messages=(path.read_bytes(),),
        refuses_with=(CheckpointError,),
        form=SAFETENSORS,
    )
    yield Decoder(
        name="checkpoint with its hash",
        sender="whoever gives a user a file",
        decode=functools.partial(_load_hashed_checkpoint, path),
        messages=(b'{"round": "3"}', b"{}"),
        refuses_with=(CheckpointError,),
        form=JSON,
    )


def _load_checkpoint(path: Path, data: bytes) -> object:
    path.write_bytes(data)
    try:
        return load_checkpoint(path)
    finally:
        _remove_all(path)


def _load_hashed_checkpoint(path: Path, facts: bytes) -> object:
    """A file whose facts are hostile and whose hash is right."""
    tensors, text = {"a": torch.ones(1)}, facts.decode("utf-8", "replace")
    metadata = {"bt_facts": text, "bt_sha256": _file_hash(tensors, text)}
    safetensors.torch.save_file(tensors, path, metadata=metadata)
    try:
        return load_checkpoint(path)
    finally:
        _remove_all(path)


def _file_hash(tensors: dict[str, torch.Tensor], facts_text: str) -> str:
    return hashlib.sha256(f"{tensors_digest(tensors)}\n{facts_text}".encode()).hexdigest()


def _remove_all(path: Path) -> None:
    """A damaged checkpoint is moved aside; here that would be a million files."""
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def file_decoders(folder: Path) -> Iterable[Decoder]:
    """Files that are no tensors."""
    manifest, state = tiny_manifest(), StateDir(folder)
    snapshot = NodeSnapshot(
        pid=os.getpid(),
        peer_id=tiny_identity(1).peer_id,
        run_id=manifest.run_id,
        block=1,
        state="training",
        round_ends_at_s=START_S,
        loss=1.5,
        loss_history=[2.0, 1.5],
        last_average_at_s=START_S,
        addresses=[ADDRESS],
        noted=[Reason(code=ReasonCode.DISK_LOW, evidence="1 MiB", since_s=START_S)],
    )
    yield Decoder(
        name="manifest file",
        sender="whoever gives a user a file",
        decode=functools.partial(
            _read_file, folder / "manifest.json", lambda: read_manifest(folder / "manifest.json")
        ),
        messages=(manifest.canonical_bytes(), b"{}"),
        refuses_with=(ConfigError,),
        form=JSON,
    )
    export = folder / "export"
    model = ModelExport(
        manifest=manifest,
        weights=tuple(tiny_weights(manifest, block) for block in range(manifest.model.num_blocks)),
        rounds=(1, 2, 3),
    )
    save_export(export, model, exported_at_s=START_S, sources=())
    yield Decoder(
        name="facts of an export",
        sender="whoever gives a user a folder",
        decode=functools.partial(_read_file, export / FACTS_NAME, lambda: load_export(export)),
        messages=((export / FACTS_NAME).read_bytes(),),
        refuses_with=(ConfigError,),
        form=JSON,
    )
    yield Decoder(
        name="node snapshot",
        sender="another program of the user",
        decode=functools.partial(_read_file, folder / SNAPSHOT_NAME, lambda: _status(folder)),
        messages=(snapshot.model_dump_json().encode(),),
        form=JSON,
    )
    yield Decoder(
        name="peers met",
        sender="peers, through a file",
        decode=functools.partial(_read_file, folder / "peers.json", state.remembered_peers),
        messages=(json.dumps([ADDRESS]).encode(),),
        form=JSON,
    )
    key = folder / "some.key"
    tiny_identity(1).save(key)
    yield Decoder(
        name="key file",
        sender="whoever gives a user a file",
        decode=functools.partial(_read_file, key, lambda: PeerIdentity.load(key)),
        messages=(key.read_bytes(),),
        refuses_with=(ConfigError,),
    )
    key.unlink()


def _read_file(path: Path, read: Callable[[], object], data: bytes) -> object:
    path.write_bytes(data)
    return read()


def _status(folder: Path) -> object:
    """What `bt-node status` makes of the file."""
    snapshot = read_snapshot(folder)
    if snapshot is None:
        return None
    json.dumps(status_document(None, snapshot, START_S))
    return status_text(None, snapshot, START_S, 80)
