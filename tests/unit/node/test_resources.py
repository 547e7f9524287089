"""What fits this machine: limits of control groups, parts of a batch, room on the disk."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from bt_p2p.errors import ConfigError
from bt_p2p.model.sizes import BlockSizes, block_sizes
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec
from node import resources
from node.resources import (
    check_disk,
    check_memory,
    checkpoint_size_bytes,
    folder_size_bytes,
    low_disk_words,
    memory_limit_bytes,
    needed_memory_bytes,
    parts_that_fit,
)

MIB = 2**20
TOTAL = psutil.virtual_memory().total
V1_UNLIMITED = "9223372036854771712"


def sizes_of(*, batch_size: int = 32) -> BlockSizes:
    return block_sizes(ModelSpec(d_model=256), ObjectiveSpec(), batch_size=batch_size)


def write_tree(root: Path, groups: str, limits: dict[str, str]) -> Path:
    """A fake /proc and /sys."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": f"{64 * MIB}"}, 64 * MIB),
        ("0::/user/scope\n", {"user/scope/memory.max": f"{64 * MIB}"}, 64 * MIB),
        (
            "0::/user/scope\n",
            {"user/scope/memory.max": "max", "user/memory.max": f"{80 * MIB}"},
            80 * MIB,
        ),
        (
            "0::/user/scope\n",
            {"user/scope/memory.max": f"{90 * MIB}", "user/memory.max": f"{80 * MIB}"},
            80 * MIB,
        ),
        ("0::/scope\n", {"scope/memory.high": f"{70 * MIB}", "scope/memory.max": "max"}, 70 * MIB),
        ("0::/docker/seen/from/outside\n", {"memory.max": f"{64 * MIB}"}, 64 * MIB),
        ("0::/../../elsewhere\n", {"memory.max": f"{64 * MIB}"}, 64 * MIB),
        ("0::/scope\n", {"unified/scope/memory.max": f"{64 * MIB}"}, 64 * MIB),
        (
            "9:cpu:/\n4:memory:/app/one\n0::/\n",
            {
                "memory/app/one/memory.limit_in_bytes": V1_UNLIMITED,
                "memory/app/memory.limit_in_bytes": f"{50 * MIB}",
            },
            50 * MIB,
        ),
        ("4:cpu,memory:/app\n", {"cpu,memory/app/memory.limit_in_bytes": "1048576"}, MIB),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": V1_UNLIMITED}, TOTAL),
        ("0::/scope\n", {"scope/memory.max": "max"}, TOTAL),
        ("0::/scope\n", {"scope/memory.max": "nonsense"}, TOTAL),
        ("nonsense\n\n", {}, TOTAL),
    ],
)
def test_the_tightest_limit_on_the_way_up_counts(tmp_path, groups, limits, expected):
    """Both versions, nested groups, containers that see a foreign path, and garbage."""
    assert expected == memory_limit_bytes(write_tree(tmp_path, groups, limits))


def test_without_any_control_group_the_machine_is_the_limit(tmp_path):
    """As on systems other than Linux."""
    assert TOTAL == memory_limit_bytes(tmp_path)


def test_this_process_has_a_limit_of_its_machine():
    """The real files can be read."""
    assert 0 < memory_limit_bytes() <= TOTAL


def test_a_batch_is_divided_until_it_fits():
    """In as few parts as possible, and refused only when single sequences do not fit."""
    sizes = sizes_of()

    def limit_for(num_parts: int) -> int:
        return needed_memory_bytes(sizes, num_parts=num_parts)

    def parts_within(limit_bytes: int) -> int | None:
        return parts_that_fit(sizes, batch_size=24, limit_bytes=limit_bytes)

    assert [1, 2, 4, 8, 16, 24] == [parts_within(limit_for(n)) for n in (1, 2, 4, 8, 16, 24)]
    assert parts_within(limit_for(24) - 1) is None


def test_a_block_that_cannot_fit_is_refused_with_the_numbers(monkeypatch):
    """What it needs at least, and what there is."""
    monkeypatch.setattr(resources, "memory_limit_bytes", lambda: 100 * MIB)
    with pytest.raises(ConfigError, match=r"needs about \d+ MiB .* allows 100 MiB"):
        check_memory(sizes_of(), batch_size=32)


def test_copies_of_other_blocks_count(monkeypatch):
    """A span that does not fit beside training is refused too."""
    sizes = sizes_of()
    monkeypatch.setattr(resources, "memory_limit_bytes", lambda: needed_memory_bytes(sizes))
    assert 1 == check_memory(sizes, batch_size=32)
    with pytest.raises(ConfigError):
        check_memory(sizes, batch_size=32, num_copies=200)


def test_room_for_checkpoints_counts_those_that_are_there(tmp_path, monkeypatch):
    """A node that comes back to an almost full disk needs room for one more only."""
    size = checkpoint_size_bytes(sizes_of())
    monkeypatch.setattr(resources, "free_bytes", lambda folder: size)
    folder = tmp_path / "runs" / "run"
    with pytest.raises(ConfigError, match="--state-dir"):
        check_disk(folder, sizes_of())
    folder.mkdir(parents=True)
    for name in ("block-0.safetensors", "block-0.safetensors.previous"):
        with (folder / name).open("wb") as file:
            file.truncate(size)
    check_disk(folder, sizes_of())


def test_little_room_is_told_before_it_is_used_up():
    """From below two checkpoints on."""
    assert "" == low_disk_words(20 * MIB, 10 * MIB)
    assert "only 19 MiB are free" in low_disk_words(20 * MIB - 1, 10 * MIB)


def test_the_size_of_a_folder_is_that_of_all_files_in_it(tmp_path):
    """Links are not followed; nothing at all is nothing."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(bytes(1000))
    (tmp_path / "file").write_bytes(bytes(10))
    (tmp_path / "link").symlink_to(tmp_path / "a" / "file")
    assert 1010 == folder_size_bytes(tmp_path)
    assert 0 == folder_size_bytes(tmp_path / "nowhere")
