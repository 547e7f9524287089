"""Small files that are replaced as a whole, so that a reader, or a kill, never sees half of one."""

from __future__ import annotations

from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file beside its place, and put it there at once.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    partial.replace(path)
