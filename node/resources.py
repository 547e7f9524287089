"""Does the block fit this machine: memory against the real limit, and disk. Before any network."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

from bt_p2p.errors import ConfigError
from bt_p2p.model.sizes import BlockSizes

BASELINE_MEMORY_BYTES = 700 * 2**20
"""torch, hivemind and their child processes, before any weight."""
_WEIGHT_COPIES = 5
"""Beside training: the serving copy, what is averaged, the averager's buffers, and its parts."""
_CHECKPOINTS_ON_DISK = 3
"""The current, the previous, and the one being written."""
_MIB = 2**20


def memory_limit_bytes() -> int:
    """What this process may use: the control group's limit, or the machine's memory."""
    limits = [int(psutil.virtual_memory().total)]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def needed_memory_bytes(sizes: BlockSizes, *, num_copies: int = 0) -> int:
    """Estimate of a node's memory: training, serving and averaging one block, and serving copies."""
    return (
        BASELINE_MEMORY_BYTES
        + sizes.training_size_bytes
        + (_WEIGHT_COPIES + 2 * num_copies) * sizes.weights_size_bytes  # served and downloaded
    )


def check_memory(sizes: BlockSizes, *, num_copies: int = 0) -> None:
    """Refuse a block that cannot fit, or that does not fit beside copies of others.

    Raises:
        ConfigError: with the numbers.
    """
    needed, limit = needed_memory_bytes(sizes, num_copies=num_copies), memory_limit_bytes()
    if needed > limit:
        raise ConfigError(
            f"one block of this run needs about {needed // _MIB} MiB of memory, this machine "
            f"allows {limit // _MIB} MiB; join a run with smaller blocks or batches"
        )


def check_disk(state_dir: Path, sizes: BlockSizes) -> None:
    """Refuse a disk on which the checkpoints do not fit.

    Raises:
        ConfigError: with the numbers.
    """
    checkpoint_bytes = sizes.weights_size_bytes + sizes.optimizer_size_bytes
    needed = _CHECKPOINTS_ON_DISK * checkpoint_bytes
    free = shutil.disk_usage(state_dir).free
    if needed > free:
        raise ConfigError(
            f"checkpoints need {needed // _MIB} MiB, but the disk of {state_dir} has "
            f"{free // _MIB} MiB free; choose another place with --state-dir"
        )
