"""English prose that ships inside CPython: help topics and docstrings; needs no network.

The standard library is parsed, never imported. About 1.7 MB and 2.5 s of CPU, hence the cache.
Another Python version gives a slightly different text.
"""

from __future__ import annotations

import ast
import logging
import os
import platform
import re
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from bt_p2p.errors import ConfigError

logger = logging.getLogger(__name__)

_SKIPPED_FOLDERS = frozenset(
    {
        "test", "tests", "idlelib", "lib2to3", "encodings", "turtledemo", "ensurepip",
        "site-packages", "dist-packages", "pydoc_data", "__pycache__",
    }
)  # fmt: skip
_SKIPPED_PREFIX = "config-"
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_FORMAT = 2
"""Of the text, in the name of the cached file; another one makes a new cache."""
_MIN_DOCSTRING_CHARS = 80
"""Shorter docstrings are names, not prose."""


def embedded_text(cache_dir: Path | None) -> bytes:
    """Help topics in order of their keys, then docstrings in order of their modules.

    Args:
        cache_dir: keeps the text in a file named after the exact Python version; None builds it
            anew, which takes seconds.

    Raises:
        ConfigError: this Python has no standard library sources.
    """
    if cache_dir is None:
        return build_text()
    python = f"{platform.python_implementation().lower()}-{platform.python_version()}"
    name = f"embedded-{_FORMAT}-{python}.txt"
    cached = cache_dir / name.replace("+", "-plus")
    try:
        text = cached.read_bytes()
    except OSError as exc:
        logger.debug("no cached corpus at %s: %s", cached, exc)
        text = b""
    if not text:
        text = build_text()
        _write_cache(cached, text)
    return text


def build_text() -> bytes:
    """Build the text from this Python's own files; takes seconds."""
    folder = Path(sysconfig.get_path("stdlib"))
    docstrings = library_docstrings(folder)
    if not docstrings:
        raise ConfigError(
            f"this Python has no library sources in {folder}, so there is no embedded text; "
            f"give a text file or folder instead"
        )
    parts = [topics[key] for key in sorted(topics)]
    return without_repeats("\n\n".join([*parts, *docstrings])).encode()


def without_repeats(text: str) -> str:
    """Keep only the first of equal paragraphs.

    Help topics contain one another and docstrings are copied between classes; held-out text would
    otherwise stand in the training text as well.
    """
    seen: dict[str, str] = {}
    for paragraph in _PARAGRAPH_BREAK.split(text):
        seen.setdefault(" ".join(paragraph.split()), paragraph)
    return "\n\n".join(paragraph for key, paragraph in seen.items() if key)


def library_docstrings(folder: Path) -> list[str]:
    """Docstrings of all modules below a folder, without repeats, in order of module paths."""
    seen: dict[str, None] = {}
    for path in _module_paths(folder):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about other people's sources
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError) as exc:
            logger.debug("skipping %s: %s", path, exc)
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node)
                if docstring is not None and len(docstring) > _MIN_DOCSTRING_CHARS:
                    seen.setdefault(docstring)
    return list(seen)


def _module_paths(folder: Path) -> list[Path]:
    return sorted(_walk(folder), key=lambda path: path.relative_to(folder).as_posix())


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith(_SKIPPED_PREFIX):
                yield from _walk(entry)
        elif entry.suffix == ".py":
            yield entry


def _write_cache(cached: Path, text: bytes) -> None:
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=cached.parent, prefix=f"{cached.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        Path(temporary).replace(cached)
    except OSError as exc:
        logger.warning("cannot keep the embedded corpus in %s: %s", cached, exc)
