"""Text from a file, or from the *.txt and *.md files of a folder."""

from __future__ import annotations

from pathlib import Path

from bt_p2p.errors import ConfigError

_SUFFIXES = (".txt", ".md")


def read_text(path: Path) -> bytes:
    """The bytes of a file, or of a folder's text files in order of their names.

    Sub-folders are not read. Files of a folder are joined as they are.

    Raises:
        ConfigError: missing, unreadable, or nothing in it.
    """
    if not path.exists():
        raise ConfigError(f"there is no text at {path}; check the path")
    files = [path]
    if path.is_dir():
        files = sorted(
            (
                entry
                for entry in _entries(path)
                if entry.suffix.lower() in _SUFFIXES and entry.is_file()
            ),
            key=lambda entry: entry.name,
        )
        if not files:
            raise ConfigError(f"the folder {path} has no *.txt or *.md files; put the text there")
    text = b"".join(_read(file) for file in files)
    if not text:
        raise ConfigError(f"the text at {path} is empty; choose another")
    return text


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as exc:
        raise ConfigError(f"cannot list the folder {folder}: {exc}; fix its permissions") from exc


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise ConfigError(f"cannot read the text {file}: {exc}; fix its permissions") from exc
