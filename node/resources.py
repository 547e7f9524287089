"""Does the block fit this machine: memory against the real limit, and disk. Before any network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

from bt_p2p.errors import ConfigError
from bt_p2p.model.sizes import BlockSizes

BASELINE_MEMORY_BYTES = 700 * 2**20
"""torch, hivemind and their child processes, before any weight."""
MIN_OPEN_FILES = 1024
"""Streams of strangers, connections of the daemon, and our own files."""
_WEIGHT_COPIES = 9
"""Beside training: the serving copy, what is averaged, the averager's buffers of that and of the
round's start, its parts, the copy that scores held-out text, and two snapshots for newcomers."""
_CHECKPOINTS_ON_DISK = 3
"""The current, the previous, and the one being written."""
_CHECKPOINTS_FREE = 2
"""With less room than this left for more of them, the owner is told."""
_MIB = 2**20
_V2_FILES: tuple[str, ...] = ("memory.max", "memory.high")
"""The hard limit, and the one above which the system makes a group wait."""
_V1_FILES: tuple[str, ...] = ("memory.limit_in_bytes",)


class MemoryShortError(ConfigError):
    """The block does not fit into the memory of this machine."""


class DiskShortError(ConfigError):
    """Its checkpoints do not fit on the disk."""


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """What this process may use: the tightest limit of its control groups, or the machine's memory.

    Limits of a group hold for all groups below it, so every group on the way up is asked.

    Args:
        root: of the file system; another one in tests.
    """
    limits = [int(psutil.virtual_memory().total)]
    for path in _limit_files(root):
        try:
            text = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def _limit_files(root: Path) -> Iterator[Path]:
    """Files that may hold a limit of this process, in both versions of control groups."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = ["0::/"]
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        # a path outside of what is mounted here begins with "..": only the mount's own top is ours
        inner = PurePosixPath(group.lstrip("/"))
        inner = PurePosixPath() if ".." in inner.parts else inner
        if not controllers:
            tops, names = (mounted, mounted / "unified"), _V2_FILES
        elif "memory" in controllers.split(","):
            tops, names = (mounted / "memory", mounted / controllers), _V1_FILES
        else:
            continue
        for top in tops:
            for group_path in (inner, *inner.parents):
                yield from (top / group_path / name for name in names)


def needed_memory_bytes(sizes: BlockSizes, *, num_copies: int = 0, num_parts: int = 1) -> int:
    """Estimate of a node's memory: training, serving and averaging one block, and serving copies.

    Args:
        sizes: of the block, with the whole batch.
        num_copies: other blocks that are served.
        num_parts: parts in which a step is done.
    """
    saved = sizes.activations_size_bytes - sizes.activations_size_bytes // num_parts
    return (
        BASELINE_MEMORY_BYTES
        + sizes.training_size_bytes
        - saved
        + (_WEIGHT_COPIES + 2 * num_copies) * sizes.weights_size_bytes  # served and downloaded
    )


def parts_that_fit(
    sizes: BlockSizes, *, batch_size: int, limit_bytes: int, num_copies: int = 0
) -> int | None:
    """The fewest parts of a step that fit into memory; None if not even single sequences do."""
    num_parts = 1
    while needed_memory_bytes(sizes, num_copies=num_copies, num_parts=num_parts) > limit_bytes:
        if num_parts >= batch_size:
            return None
        num_parts = min(2 * num_parts, batch_size)
    return num_parts


def check_memory(
    sizes: BlockSizes, *, batch_size: int, num_copies: int = 0, cap_bytes: int | None = None
) -> int:
    """Refuse a block that cannot fit, or that does not fit beside copies of others.

    Args:
        sizes: of the block, with one whole batch.
        batch_size: sequences in it.
        num_copies: other blocks that are served.
        cap_bytes: what the user allows; None is all that the machine does.

    Returns:
        Parts in which a step has to be done, so that its batch fits.

    Raises:
        MemoryShortError: with the numbers.
    """
    limit, who = memory_limit_bytes(), "this machine allows"
    if cap_bytes is not None and cap_bytes < limit:
        limit, who = cap_bytes, "memory_bytes allows"
    num_parts = parts_that_fit(
        sizes, batch_size=batch_size, limit_bytes=limit, num_copies=num_copies
    )
    if num_parts is None:
        needed = needed_memory_bytes(sizes, num_copies=num_copies, num_parts=batch_size)
        raise MemoryShortError(
            f"one block of this run needs about {needed // _MIB} MiB of memory, even with one "
            f"sequence at a time; {who} {limit // _MIB} MiB; join a run with smaller "
            f"blocks"
        )
    return num_parts


def checkpoint_size_bytes(sizes: BlockSizes) -> int:
    """About what one checkpoint takes on the disk."""
    return sizes.weights_size_bytes + sizes.optimizer_size_bytes


def check_disk(folder: Path, sizes: BlockSizes) -> None:
    """Refuse a disk on which the checkpoints do not fit beside those that are there.

    Args:
        folder: where they are kept; it may not exist yet.
        sizes: of the block.

    Raises:
        DiskShortError: with the numbers.
    """
    needed = _CHECKPOINTS_ON_DISK * checkpoint_size_bytes(sizes) - folder_size_bytes(folder)
    free = free_bytes(folder)
    if needed > free:
        raise DiskShortError(
            f"checkpoints need {needed // _MIB} MiB more, but the disk of {folder} has "
            f"{free // _MIB} MiB free; choose another place with --state-dir"
        )


def low_disk_words(free_size_bytes: int, checkpoint_bytes: int) -> str:
    """What the owner is told when there is little room left; empty if there is enough."""
    if free_size_bytes >= _CHECKPOINTS_FREE * checkpoint_bytes:
        return ""
    return (
        f"only {free_size_bytes // _MIB} MiB are free for checkpoints of "
        f"{max(1, checkpoint_bytes // _MIB)} MiB each; free some disk, or move the state folder"
    )


def folder_size_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; 0 if it does not exist."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += 0 if path.is_symlink() or not path.is_file() else path.stat().st_size
        except OSError:
            continue  # replaced or removed meanwhile
    return total


def free_bytes(folder: Path) -> int:
    """Free bytes of the disk on which a folder is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
