"""The only save and load of tensors on disk: safetensors, atomic, hash checked.

    <name>              the newest checkpoint
    <name>.previous     the one before it
    <name>.tmp          a save in progress, or one that was killed; overwritten by the next
    <name>.corrupt-<n>  a damaged file, moved aside for the operator; the newest few are kept

A kill at any instant leaves the newest or the previous file whole. One writer for each name.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from bt_p2p.errors import CheckpointError
from bt_p2p.model.wire import tensors_digest

logger = logging.getLogger(__name__)

_FACTS_KEY = "bt_facts"
_HASH_KEY = "bt_sha256"
_MAX_DAMAGED_KEPT = 3
"""Of one checkpoint; the oldest go first, so that a bad disk is not filled by its own damage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Tensors and facts as they were saved."""

    tensors: dict[str, Tensor]
    """On the CPU, by name."""
    facts: dict[str, str]
    """Counters and names, as text."""
    path: Path
    """The file they came from."""


class _DamagedError(Exception):
    """The file is not a checkpoint that was saved whole."""


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write a checkpoint; the one that was at `path` becomes `<name>.previous`.

    Blocks until the bytes are on the disk.

    Args:
        path: file of the newest checkpoint; its folder is made if it is missing.
        tensors: any devices, no two sharing memory.
        facts: small texts kept beside them.

    Raises:
        CheckpointError: the disk is full or cannot be written; the old checkpoint is still there.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    facts_text = json.dumps(dict(facts), sort_keys=True)
    metadata = {_FACTS_KEY: facts_text, _HASH_KEY: _file_hash(plain, facts_text)}
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(plain, temporary, metadata=metadata)
        _sync_file(temporary)
        if path.exists():
            path.replace(previous_path(path))
        temporary.replace(path)
        _sync_folder(path.parent)
    except (OSError, safetensors.SafetensorError) as exc:
        _remove_quietly(temporary)
        raise CheckpointError(
            f"cannot write the checkpoint {path}: {exc}; free some disk or fix the folder's "
            f"permissions (the last good checkpoint is kept)"
        ) from exc


def load_checkpoint(path: Path) -> Checkpoint | None:
    """The newest good checkpoint, or None when there is none at all.

    A damaged file is moved aside to `<name>.corrupt-<n>` with a WARNING, and the previous one is
    taken. After an error both are aside, so the next call returns None.

    Raises:
        CheckpointError: files exist but none is good, or the disk cannot be read.
    """
    moved: list[str] = []
    for candidate in (path, previous_path(path)):
        try:
            return _read(candidate)
        except FileNotFoundError:
            continue
        except _DamagedError as exc:
            aside = _move_aside(candidate, path)
            moved.append(str(aside))
            logger.warning("checkpoint %s is damaged (%s); moved to %s", candidate, exc, aside)
        except OSError as exc:
            raise CheckpointError(
                f"cannot read the checkpoint {candidate}: {exc}; fix its permissions or its disk"
            ) from exc
    if moved:
        raise CheckpointError(
            f"no good checkpoint at {path}; damaged files were moved to {', '.join(moved)}; "
            f"the block begins without one"
        )
    return None


def previous_path(path: Path) -> Path:
    """Where the checkpoint before the newest one is kept."""
    return path.with_name(f"{path.name}.previous")


def _file_hash(tensors: Mapping[str, Tensor], facts_text: str) -> str:
    return hashlib.sha256(f"{tensors_digest(tensors)}\n{facts_text}".encode()).hexdigest()


def _read(path: Path) -> Checkpoint:
    path.stat()
    with path.open("rb"):
        pass  # permission and disk errors surface here as OSError, not as a damaged file
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as exc:
        raise _DamagedError(str(exc)) from exc
    facts_text = metadata.get(_FACTS_KEY, "")
    if metadata.get(_HASH_KEY) != _file_hash(tensors, facts_text):
        raise _DamagedError("its hash does not match its content")
    return Checkpoint(tensors=tensors, facts=_parse_facts(facts_text), path=path)


def _parse_facts(text: str) -> dict[str, str]:
    """Anybody can write a file with a right hash, so its facts may be anything."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise _DamagedError("its facts are not JSON") from exc
    if not isinstance(facts, dict) or not all(isinstance(each, str) for each in facts.values()):
        raise _DamagedError("its facts are not texts by name")
    return facts


def _sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # other systems cannot open a folder
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damaged_paths(path: Path) -> list[Path]:
    """Damaged files of a checkpoint that were moved aside, the oldest first."""
    prefix = f"{path.name}.corrupt-"
    numbered = [
        (int(found.name.removeprefix(prefix)), found)
        for found in path.parent.glob(f"{glob.escape(prefix)}*")
        if found.name.removeprefix(prefix).isdecimal()
    ]
    return [found for _, found in sorted(numbered)]


def _move_aside(damaged: Path, path: Path) -> Path:
    before = damaged_paths(path)
    newest = int(before[-1].name.rpartition("-")[2]) if before else 0
    aside = path.with_name(f"{path.name}.corrupt-{newest + 1}")
    for old in before[: max(0, len(before) + 1 - _MAX_DAMAGED_KEPT)]:
        _remove_quietly(old)
    try:
        damaged.replace(aside)
    except OSError as exc:
        raise CheckpointError(
            f"cannot move the damaged checkpoint {damaged} to {aside}: {exc}; move it away by hand"
        ) from exc
    return aside


def _remove_quietly(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        logger.debug("cannot remove %s: %s", path, exc)
