"""What fuzzing found once stays mended: each input ended a program before."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch

from bt_p2p.errors import CheckpointError, ConfigError
from bt_p2p.model.checkpoint import load_checkpoint
from bt_p2p.model.wire import tensors_digest
from bt_p2p.protocol.address import is_peer_id
from bt_p2p.protocol.assignment import parse_span
from node.snapshot import SNAPSHOT_NAME, NodeSnapshot, read_snapshot
from node.state_dir import StateDir
from node.tui.format import sparkline


@pytest.mark.parametrize("facts", ["[1]", "{", "[" * 50_000, '{"round": 3}'])
def test_hostile_facts_with_a_right_hash_are_damage(facts: str, tmp_path: Path) -> None:
    """Anybody can compute a hash."""
    tensors, path = {"a": torch.ones(1)}, tmp_path / "checkpoint"
    digest = hashlib.sha256(f"{tensors_digest(tensors)}\n{facts}".encode()).hexdigest()
    metadata = {"bt_facts": facts, "bt_sha256": digest}
    safetensors.torch.save_file(tensors, path, metadata=metadata)
    with pytest.raises(CheckpointError, match="no good checkpoint"):
        load_checkpoint(path)


def test_a_file_of_peers_that_is_too_deep_is_as_good_as_none(tmp_path: Path) -> None:
    """The reader of JSON gives up with an error of its own."""
    (tmp_path / "peers.json").write_bytes(b"[" * 50_000)
    assert [] == StateDir(tmp_path).remembered_peers()


@pytest.mark.parametrize(
    "changes", [{"pid": 2**70}, {"pid": 0}, {"pid": -1}, {"steps": 10**400}, {"block": 2**64}]
)
def test_a_snapshot_of_impossible_numbers_is_none(changes: dict, tmp_path: Path) -> None:
    """The system cannot be asked about such a process, and nobody can show such a count."""
    snapshot = NodeSnapshot(pid=os.getpid(), peer_id="p", run_id="r").model_dump()
    (tmp_path / SNAPSHOT_NAME).write_text(json.dumps(snapshot | changes))
    assert read_snapshot(tmp_path) is None


def test_losses_as_far_apart_as_numbers_can_be_are_drawn() -> None:
    """Their difference is infinite."""
    assert "▁█" == sparkline([-1.7e308, 1.7e308], 2)


def test_a_span_of_absurd_numbers_is_refused() -> None:
    """No machine can count so far."""
    with pytest.raises(ConfigError, match="is not FIRST:END"):
        parse_span("3:" + "19" * 60)


@pytest.mark.timeout(10)
def test_a_peer_id_of_a_megabyte_is_refused_at_once() -> None:
    """Its base58 would take minutes."""
    assert not is_peer_id("2" * 1_000_000)
