"""Text of a Hugging Face data set, from the hub or from a local folder (optional extra)."""

from __future__ import annotations

import importlib
from pathlib import Path

from bt_p2p.errors import ConfigError

_COLUMN = "text"


def huggingface_text(name: str, *, split: str = "train", cache_dir: Path | None = None) -> bytes:
    """The `text` column of a data set, joined by newlines.

    Downloads on first use, which may take minutes.

    Args:
        name: `name` or `name:config` on the hub, or a local folder.
        split: which part of the data set.
        cache_dir: where the data set is kept; None takes the library's own folder.

    Raises:
        ConfigError: the extra is not installed, the data set cannot be loaded, or has no text.
    """
    if not name:
        raise ConfigError("the Hugging Face corpus has no data set name; give name or name:config")
    try:
        datasets = importlib.import_module("datasets")  # optional and slow to import
    except ImportError as exc:
        raise ConfigError(
            f"data set {name} needs the Hugging Face extra; run: pip install 'bt-p2p[hf]'"
        ) from exc
    path, config = name, None
    if not Path(name).exists():
        path, _, suffix = name.partition(":")
        config = suffix or None
    cache = None if cache_dir is None else str(cache_dir)
    try:
        rows = datasets.load_dataset(path, config, split=split, cache_dir=cache)
    except Exception as exc:  # the library raises errors of many unrelated families
        reason = " ".join(str(exc).split())
        raise ConfigError(
            f"cannot load the data set {name}, split {split}: {type(exc).__name__}: "
            f"{reason:.300}; check the name and the network"
        ) from exc
    if _COLUMN not in rows.column_names:
        raise ConfigError(
            f"data set {name} has no column {_COLUMN!r}, only {', '.join(rows.column_names)}; "
            f"choose another"
        )
    text = "\n".join(value for value in rows[_COLUMN] if value is not None).encode()
    if not text:
        raise ConfigError(f"data set {name}, split {split}, is empty; choose another")
    return text
