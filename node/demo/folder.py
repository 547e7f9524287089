"""The folder of the demo: its own is emptied, and nobody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from bt_p2p.errors import ConfigError

MARK = ".bt-demo"
"""A file that says that a demo made the folder."""


def make_empty(folder: Path) -> None:
    """An empty folder with the mark of the demo in it; files of an earlier demo are removed.

    Raises:
        ConfigError: there is something else in its place, or it cannot be written.
    """
    try:
        if folder.exists() and not (folder / MARK).is_file() and any(folder.iterdir()):
            raise ConfigError(
                f"folder {folder} is not empty and not of a demo, so nothing in it is removed; name "
                f"another with --folder"
            )
        if folder.exists():
            for path in folder.iterdir():
                _remove(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).write_bytes(b"")
    except OSError as exc:
        raise ConfigError(
            f"folder {folder} of the demo cannot be used: {exc}; name another with --folder"
        ) from exc


def _remove(path: Path) -> None:
    """The mark goes with the rest; links are removed, not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
