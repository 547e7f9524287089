"""bt_p2p.model.checkpoint."""

from __future__ import annotations

import json
import logging
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import safetensors.torch
import torch

from bt_p2p.errors import CheckpointError
from bt_p2p.model import checkpoint as checkpoint_module
from bt_p2p.model.checkpoint import load_checkpoint, previous_path, save_checkpoint


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
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*block"):
            save_checkpoint(saved_twice, {"w": torch.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
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


SAVER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import torch
    from bt_p2p.model.checkpoint import save_checkpoint
    for number in range(10_000):
        save_checkpoint(
            Path(sys.argv[1]), {"w": torch.full((200_000,), float(number))}, {"n": str(number)}
        )
        print(number, flush=True)
    """
)


@pytest.mark.slow
@pytest.mark.parametrize("kill_after", [1, 2, 4])
def test_a_kill_in_mid_save_loses_at_most_the_save_in_progress(path, kill_after):
    """kill -9 at an arbitrary instant: what loads is whole and no older than the last report."""
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        reported = -1
        while reported < kill_after:
            reported = int(saver.stdout.readline())
    finally:
        saver.kill()
        rest, _ = saver.communicate()
    reported = max([reported, *map(int, rest.split())])
    loaded = load_checkpoint(path)
    number = int(loaded.facts["n"])
    assert reported <= number <= reported + 1
    assert torch.equal(torch.full((200_000,), float(number)), loaded.tensors["w"])
