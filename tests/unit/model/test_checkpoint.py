"""bt_p2p.model.checkpoint."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import threading
from pathlib import Path
from random import Random

import pytest
import safetensors.torch
import torch

from bt_p2p.errors import CheckpointError
from bt_p2p.model import checkpoint as checkpoint_module
from bt_p2p.model.checkpoint import load_checkpoint, previous_path, save_checkpoint
from tests.small_disk import limited_files, small_disk


def tensors_of(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3, 2), value), "n": torch.tensor([1, 2])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint in a folder that does not exist yet."""
    return tmp_path / "state" / "block.safetensors"


@pytest.fixture
def saved_twice(path: Path) -> Path:
    """Newest 2, previous 1."""
    save_checkpoint(path, tensors_of(1.0), {"round": "1"})
    save_checkpoint(path, tensors_of(2.0), {"round": "2"})
    return path


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_nothing_saved_is_none(path):
    """A first start, not an error."""
    assert load_checkpoint(path) is None


def test_tensors_and_facts_come_back(path):
    """Bit for bit, with the file they came from."""
    tensors = tensors_of(0.1) | {"bf": torch.ones(2, dtype=torch.bfloat16), "s": torch.tensor(3.0)}
    save_checkpoint(path, tensors, {"round": "7", "name": "eps \u00e9"})
    loaded = load_checkpoint(path)
    assert path == loaded.path
    assert {"round": "7", "name": "eps \u00e9"} == loaded.facts
    assert tensors.keys() == loaded.tensors.keys()
    assert all(torch.equal(tensors[name], loaded.tensors[name]) for name in tensors)
    assert all(tensors[name].dtype == loaded.tensors[name].dtype for name in tensors)


def test_the_previous_checkpoint_is_kept(saved_twice):
    """And nothing else is left in the folder."""
    assert "2" == load_checkpoint(saved_twice).facts["round"]
    assert "1" == load_checkpoint(previous_path(saved_twice)).facts["round"]
    assert ["block.safetensors", "block.safetensors.previous"] == names_in(saved_twice.parent)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _change_a_fact(path: Path) -> None:
    data = path.read_bytes()
    changed = data.replace(rb"\"round\": \"2\"", rb"\"round\": \"3\"")
    assert data != changed
    path.write_bytes(changed)


def _forget_the_hash(path: Path) -> None:
    safetensors.torch.save_file(tensors_of(2.0), path)


DAMAGES = {
    "truncated": _truncate,
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "empty": lambda path: path.write_bytes(b""),
    "html": lambda path: path.write_bytes(b"<html><body>Not Found</body></html>"),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "one bit of a tensor": _flip_last_byte,
    "one fact": _change_a_fact,
    "no hash": _forget_the_hash,
    "pickle": lambda path: path.write_bytes(b"\x80\x04N."),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_moved_aside_for_the_previous_one(saved_twice, damage, caplog):
    """The damaged bytes are kept, and a WARNING says where."""
    damage(saved_twice)
    damaged = saved_twice.read_bytes()
    with caplog.at_level(logging.WARNING):
        loaded = load_checkpoint(saved_twice)
    assert "1" == loaded.facts["round"]
    aside = saved_twice.with_name("block.safetensors.corrupt-1")
    assert damaged == aside.read_bytes()
    assert not saved_twice.exists()
    assert [("WARNING", True)] == [
        (record.levelname, str(aside) in record.getMessage()) for record in caplog.records
    ]


def test_a_save_after_damage_keeps_the_good_previous_one(saved_twice):
    """The fallback survives until there are two good files again."""
    _truncate(saved_twice)
    load_checkpoint(saved_twice)
    save_checkpoint(saved_twice, tensors_of(3.0), {"round": "3"})
    assert "3" == load_checkpoint(saved_twice).facts["round"]
    assert "1" == load_checkpoint(previous_path(saved_twice)).facts["round"]


def test_nothing_good_is_an_error_once(saved_twice):
    """Both files are kept aside and named; the next start begins anew."""
    _truncate(saved_twice)
    _truncate(previous_path(saved_twice))
    with pytest.raises(CheckpointError, match=r"corrupt-1, .*corrupt-2"):
        load_checkpoint(saved_twice)
    expected = ["block.safetensors.corrupt-1", "block.safetensors.corrupt-2"]
    assert expected == names_in(saved_twice.parent)
    assert load_checkpoint(saved_twice) is None


def test_older_damaged_files_are_not_overwritten(saved_twice):
    """Each gets its own number."""
    saved_twice.with_name("block.safetensors.corrupt-1").write_bytes(b"older")
    _truncate(saved_twice)
    load_checkpoint(saved_twice)
    assert b"older" == saved_twice.with_name("block.safetensors.corrupt-1").read_bytes()
    assert saved_twice.with_name("block.safetensors.corrupt-2").exists()


def test_a_killed_rename_leaves_the_previous_one(saved_twice):
    """Killed between the two renames there is no newest file, and no damage either."""
    saved_twice.replace(previous_path(saved_twice))
    assert "2" == load_checkpoint(saved_twice).facts["round"]


def test_a_full_disk_keeps_the_good_checkpoint(saved_twice):
    """A limit on file size stands in for the full disk; the half-written file is removed."""
    with (
        limited_files(1000),
        pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*block"),
    ):
        save_checkpoint(saved_twice, {"w": torch.zeros(10_000)}, {})
    assert "2" == load_checkpoint(saved_twice).facts["round"]
    assert ["block.safetensors", "block.safetensors.previous"] == names_in(saved_twice.parent)


def test_an_unwritable_folder_is_a_clear_error(tmp_path):
    """A file where the folder should be; the message names the path."""
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"state/block\.safetensors"):
        save_checkpoint(tmp_path / "state" / "block.safetensors", tensors_of(1.0), {})


def test_an_unreadable_file_is_not_taken_for_damage(saved_twice, monkeypatch):
    """Permissions are for the user to fix; nothing is moved."""

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(checkpoint_module, "_read", refuse)
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*Permission denied"):
        load_checkpoint(saved_twice)
    assert saved_twice.exists()


def test_the_format_is_plain_safetensors(path):
    """Other tools can read the weights and the facts."""
    save_checkpoint(path, tensors_of(1.0), {"round": "1"})
    with safetensors.safe_open(path, framework="pt") as file:
        assert {"round": "1"} == json.loads(file.metadata()["bt_facts"])
        assert torch.equal(tensors_of(1.0)["w"], file.get_tensor("w"))


def test_only_the_newest_damaged_files_are_kept(saved_twice):
    """A disk that goes bad is not filled by its own damage."""
    for number in range(1, 8):
        save_checkpoint(saved_twice, tensors_of(2.0), {})
        saved_twice.write_bytes(b"damage %d" % number)
        load_checkpoint(saved_twice)
    names = [name for name in names_in(saved_twice.parent) if "corrupt" in name]
    assert [f"block.safetensors.corrupt-{number}" for number in (5, 6, 7)] == names
    assert b"damage 7" == saved_twice.with_name(names[-1]).read_bytes()


def test_a_small_disk_keeps_the_good_checkpoint(tmp_path):
    """Really full, then really read-only."""
    with small_disk(tmp_path / "disk", 1_000_000) as disk:
        path = disk.path / "block.safetensors"
        save_checkpoint(path, {"w": torch.ones(50_000)}, {"n": "1"})
        save_checkpoint(path, {"w": torch.ones(50_000)}, {"n": "2"})
        disk.fill()
        with pytest.raises(CheckpointError, match="No space left"):
            save_checkpoint(path, {"w": torch.ones(200_000)}, {"n": "3"})
        assert "2" == load_checkpoint(path).facts["n"]
        disk.set_read_only(True)
        with pytest.raises(CheckpointError, match="Read-only"):
            save_checkpoint(path, {"w": torch.ones(50_000)}, {"n": "3"})
        assert "2" == load_checkpoint(path).facts["n"]
        assert "1" == load_checkpoint(previous_path(path)).facts["n"]


NUM_KILLS = 100
WEIGHTS = 20_000


def save_for_ever(path: Path, first: int, reports: int) -> None:
    """In a child: save number after number, and report each that is done."""
    for number in range(first, first + 10_000):
        save_checkpoint(path, {"w": torch.full((WEIGHTS,), float(number))}, {"n": str(number)})
        os.write(reports, f"{number} ".encode())


def kill_a_saver(path: Path, first: int, after_s: float) -> int:
    """Save in a forked child and kill -9 it; the last number it reported."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            save_for_ever(path, first, writable)
        finally:
            os._exit(1)
    os.close(writable)
    reported = b""
    select.select([readable], [], [], 10)  # it has started
    threading.Event().wait(after_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(readable, "rb") as pipe:
        reported = pipe.read()
    return int(reported.split()[-1])


@pytest.mark.slow
def test_a_hundred_kills_in_mid_save_lose_at_most_the_save_in_progress(path):
    """kill -9 at arbitrary instants: what loads is whole and no older than the last report."""
    random, number = Random(1), 0
    instants = set()
    for _ in range(NUM_KILLS):
        reported = kill_a_saver(path, number, random.uniform(0.0, 0.01))
        instants.add(tuple(names_in(path.parent)))
        loaded = load_checkpoint(path)
        number = int(loaded.facts["n"])
        assert reported <= number <= reported + 1
        assert torch.equal(torch.full((WEIGHTS,), float(number)), loaded.tensors["w"])
    assert not any("corrupt" in name for names in instants for name in names)
    assert len(instants) > 1  # some kills came while a file was being written
