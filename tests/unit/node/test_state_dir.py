"""The state folder: one node at a time, and nothing damaged is believed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bt_p2p.errors import ConfigError
from bt_p2p.testing.tiny import tiny_manifest
from node.state_dir import NodeLock, StateDir, default_state_dir
from tests.small_disk import limited_files

ADDRESS = "/ip4/192.0.2.1/tcp/31337/p2p/12D3KooWCtcgQySagj3N4MLdcC1hYb8M7DjjkfTC6qwJmeYH91Gp"


def test_default_place_does_not_depend_on_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity is found again wherever the command is run."""
    before = default_state_dir()
    monkeypatch.chdir(tmp_path)

    assert before == default_state_dir()
    assert before.is_absolute()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="--state-dir"):
        StateDir(tmp_path / "file" / "state").create()


def test_only_one_node_holds_the_lock(tmp_path: Path) -> None:
    """The second one is told who holds it; afterwards it is free again."""
    state = StateDir(tmp_path)
    with NodeLock(state), pytest.raises(ConfigError, match="process"), NodeLock(state):
        pass

    with NodeLock(state):
        pass


def test_manifests_are_remembered_and_damaged_ones_left_out(tmp_path: Path) -> None:
    """A changed byte makes it another run's."""
    state = StateDir(tmp_path)
    good, bad = tiny_manifest("good"), tiny_manifest("bad")
    state.remember_manifest(good)
    state.remember_manifest(bad)
    path = tmp_path / "runs" / bad.run_id / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"seed":0', b'"seed":1'))

    assert {good.run_id: good} == state.remembered_manifests()


def test_peers_are_remembered_latest_first_without_repeats(tmp_path: Path) -> None:
    """What is met again moves to the front."""
    state = StateDir(tmp_path)
    other = ADDRESS.replace("192.0.2.1", "192.0.2.2")
    state.remember_peers([ADDRESS])
    state.remember_peers([other, ADDRESS])

    assert [other, ADDRESS] == [address.text for address in state.remembered_peers()]


@pytest.mark.parametrize("content", ["", "{", '["not an address"]', "7"])
def test_a_damaged_list_of_peers_is_no_peers(tmp_path: Path, content: str) -> None:
    """It is only a convenience."""
    (tmp_path / "peers.json").write_text(content)

    assert [] == StateDir(tmp_path).remembered_peers()


def test_held_blocks_are_listed_latest_first(tmp_path: Path) -> None:
    """Other files are no checkpoints."""
    import os

    state = StateDir(tmp_path)
    for block, changed_at_s in ((0, 100), (2, 300), (1, 200)):
        path = state.checkpoint_path("run", block)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        os.utime(path, (changed_at_s, changed_at_s))
    (tmp_path / "runs" / "run" / "block-x.safetensors").write_bytes(b"")

    assert [2, 1, 0] == state.held_blocks("run")


def test_what_the_disk_does_not_take_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Peers and manifests only make the next start easier: the old ones stay, the node goes on."""
    state, manifest = StateDir(tmp_path), tiny_manifest("kept")
    state.remember_peers([ADDRESS])
    with caplog.at_level(logging.WARNING), limited_files(10):
        for _ in range(3):
            state.remember_peers([ADDRESS.replace("192.0.2.1", "192.0.2.2")])
            state.remember_manifest(manifest)

    assert [ADDRESS] == [address.text for address in state.remembered_peers()]
    assert {} == state.remembered_manifests()
    assert 2 == len(caplog.records)
    state.remember_manifest(manifest)
    assert {manifest.run_id: manifest} == state.remembered_manifests()


def test_a_full_disk_is_told_before_anything_else(tmp_path: Path) -> None:
    """Nothing is left behind by the attempt."""
    with limited_files(10), pytest.raises(ConfigError, match="File too large"):
        StateDir(tmp_path).create()

    assert [] == list(tmp_path.iterdir())


def test_the_lock_needs_no_room_on_the_disk(tmp_path: Path) -> None:
    """Only the number of its process is missing then."""
    state = StateDir(tmp_path)
    with (
        limited_files(0),
        NodeLock(state),
        pytest.raises(ConfigError, match="unknown"),
        NodeLock(state),
    ):
        pass
