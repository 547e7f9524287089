"""Saving: what is due, what a disk does not take, and what is told of the disk."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from bt_p2p.errors import CheckpointError
from bt_p2p.model.checkpoint import previous_path
from bt_p2p.model.device import DeviceChoice
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.tiny import tiny_manifest
from bt_p2p.training.data import BatchSource
from bt_p2p.training.trainer import BlockTrainer
from node.record import NodeRecord
from node.saver import SAVE_PERIOD_S, CheckpointSaver
from node.snapshot import NodeSnapshot, read_snapshot
from tests.small_disk import limited_files, small_disk

MANIFEST = tiny_manifest()
TEXT = np.frombuffer(b"the quick brown fox jumps over the lazy dog. " * 40, dtype=np.uint8)


class Node:
    """What saves, and what shows it, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        snapshot = NodeSnapshot(pid=1, peer_id="peer", run_id=MANIFEST.run_id)
        self.record = NodeRecord(folder, snapshot, self.clock)
        self.path = folder / "runs" / "run" / "block-0.safetensors"
        self.saver = CheckpointSaver(
            self.path, self.record, self.clock, state_path=folder, checkpoint_bytes=50_000
        )
        device = DeviceChoice(device=torch.device("cpu"), autocast_bf16=False, reason="test")
        source = BatchSource(TEXT, MANIFEST.model.context, 4)
        self.trainer = BlockTrainer(MANIFEST, 0, device, source, "me")

    def saved_round(self) -> int:
        checkpoint = self.saver.load()
        assert checkpoint is not None
        return int(checkpoint.facts["round_index"])

    @property
    def warnings(self) -> list[str]:
        return [reason.line for reason in self.record.snapshot.noted]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node that has saved round 1."""
    node = Node(tmp_path)
    node.trainer.start_round(1)
    assert node.saver.save(node.trainer)
    return node


def test_a_save_is_due_once_in_a_period(node):
    """Counted from the last attempt."""
    node.trainer.start_round(2)
    node.clock.advance(SAVE_PERIOD_S - 1)
    node.saver.save_if_due(node.trainer)
    assert 1 == node.saved_round()
    node.clock.advance(1)
    node.saver.save_if_due(node.trainer)
    assert 2 == node.saved_round()


def test_the_use_of_the_disk_is_shown(node):
    """Of the whole folder, and what is left."""
    snapshot = node.record.snapshot
    assert snapshot.disk_used_bytes >= node.path.stat().st_size
    assert snapshot.disk_free_bytes > 0
    assert [] == node.warnings


def test_little_room_is_a_warning(node, monkeypatch):
    """And no warning any more once there is room again."""
    monkeypatch.setattr("node.saver.free_bytes", lambda folder: 99_999)
    node.saver.look_at_disk()
    assert 1 == len(node.warnings)
    assert node.warnings[0].startswith("disk-low: only 0 MiB are free")
    monkeypatch.undo()
    node.saver.look_at_disk()
    assert [] == node.warnings


def test_what_the_disk_does_not_take_is_told_once_and_ends_nothing(node, caplog):
    """The checkpoint before stays; the next one that is taken clears the warning."""
    with caplog.at_level(logging.WARNING), limited_files(1000):
        for round_index in (2, 3):
            node.trainer.start_round(round_index)
            assert not node.saver.save(node.trainer)
    assert 1 == len([record for record in caplog.records if "checkpoint" in record.message])
    assert "cannot write the checkpoint" in node.warnings[0]
    assert 1 == node.saved_round()
    assert node.saver.save(node.trainer)
    assert ([], 3) == (node.warnings, node.saved_round())


def test_damaged_checkpoints_are_none(node):
    """The node goes on without one, and takes its weights from the swarm."""
    node.saver.save(node.trainer)
    for path in (node.path, previous_path(node.path)):
        path.write_bytes(b"damaged")
    assert node.saver.load() is None


def test_a_disk_that_cannot_be_read_is_an_error(node, monkeypatch):
    """It may hold a good checkpoint, over which nothing must be saved."""

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("bt_p2p.model.checkpoint._read", refuse)
    with pytest.raises(CheckpointError, match="cannot read the checkpoint"):
        node.saver.load()


def test_a_snapshot_that_is_not_written_is_told_once(node, caplog):
    """The old one stays whole."""
    node.record.write()
    before = (node.path.parents[2] / "node.json").read_bytes()
    with caplog.at_level(logging.WARNING), limited_files(10):
        node.record.write()
        node.record.write()
    assert 1 == len(caplog.records)
    assert before == (node.path.parents[2] / "node.json").read_bytes()


def test_a_really_full_disk_ends_nothing(tmp_path):
    """A small file system: full, free again, then read-only."""
    with small_disk(tmp_path / "disk", 1_000_000) as disk:
        node = Node(disk.path)
        node.trainer.start_round(1)
        assert node.saver.save(node.trainer)
        node.record.write()
        disk.fill()
        node.trainer.start_round(2)
        assert not node.saver.save(node.trainer)
        node.record.write()
        assert 1 == node.saved_round()
        disk.free()
        assert node.saver.save(node.trainer)
        disk.set_read_only(True)
        node.trainer.start_round(3)
        assert not node.saver.save(node.trainer)
        node.record.write()
        assert (2, 1) == (node.saved_round(), len(node.warnings))
        disk.set_read_only(False)
        assert node.saver.save(node.trainer)
        assert (3, []) == (node.saved_round(), node.warnings)
        assert read_snapshot(disk.path) is not None
