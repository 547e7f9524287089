"""bt_p2p.corpus.embedded."""

from __future__ import annotations

import platform
import sys

import pytest

from bt_p2p.corpus import embedded as embedded_module
from bt_p2p.corpus.embedded import build_text, embedded_text, library_docstrings
from bt_p2p.errors import ConfigError

LONG = "A docstring that is long enough to count as prose, since it has over eighty characters, {}."


@pytest.fixture
def library(tmp_path):
    """A tiny standard library."""
    sources = {
        "b.py": f'"""{LONG.format("b")}"""\n',
        "a/deep.py": f'def f():\n    """{LONG.format("f")}"""\n    raise SystemExit\n',
        "a/repeat.py": f'class C:\n    """{LONG.format("b")}"""\n',
        "short.py": '"""Too short."""\n',
        "broken.py": "def (:\n",
        "nul.py": "\x00",
        "notes.txt": LONG.format("txt"),
        "test/t.py": f'"""{LONG.format("t")}"""\n',
        "a/tests/t.py": f'"""{LONG.format("t")}"""\n',
        "config-3.11-x/t.py": f'"""{LONG.format("t")}"""\n',
        "site-packages/t.py": f'"""{LONG.format("t")}"""\n',
        "pydoc_data/topics.py": f'"""{LONG.format("t")}"""\n',
    }
    for name, source in sources.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path / "lib"


def test_docstrings_come_in_order_of_paths_without_repeats(library):
    """Skipped folders, short ones, broken files and code are left out; nothing is run."""
    assert [LONG.format("f"), LONG.format("b")] == library_docstrings(library)


def test_the_text_is_kept_in_a_file_named_after_the_python(tmp_path, monkeypatch):
    """Built once; another Python gets another file."""
    calls = []
    monkeypatch.setattr(embedded_module, "build_text", lambda: calls.append(1) or b"prose")
    assert [b"prose", b"prose"] == [embedded_text(tmp_path / "cache") for _ in range(2)]
    assert [1] == calls
    (name,) = [entry.name for entry in (tmp_path / "cache").iterdir()]
    assert platform.python_version() in name.replace("-plus", "+")


def test_no_cache_builds_anew(monkeypatch):
    """For those who want nothing on the disk."""
    monkeypatch.setattr(embedded_module, "build_text", lambda: b"prose")
    assert b"prose" == embedded_text(None)


def test_an_empty_cache_is_built_anew(tmp_path, monkeypatch):
    """A file that a full disk left behind does not count."""
    monkeypatch.setattr(embedded_module, "build_text", lambda: b"prose")
    embedded_text(tmp_path)
    (cached,) = tmp_path.iterdir()
    cached.write_bytes(b"")
    assert b"prose" == embedded_text(tmp_path)
    assert b"prose" == cached.read_bytes()


def test_an_unwritable_cache_only_costs_time(tmp_path, monkeypatch, caplog):
    """The text is there all the same, with a WARNING."""
    monkeypatch.setattr(embedded_module, "build_text", lambda: b"prose")
    (tmp_path / "file").write_bytes(b"")
    assert b"prose" == embedded_text(tmp_path / "file")
    assert ["WARNING"] == [record.levelname for record in caplog.records]


def test_a_python_without_sources_is_told_what_to_do(tmp_path, monkeypatch):
    """Some distributions ship bytecode only."""
    monkeypatch.setattr(embedded_module.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(ConfigError, match="give a text file or folder instead"):
        build_text()


@pytest.mark.slow
def test_the_real_library_gives_megabytes_of_prose_and_imports_nothing():
    """Mostly ASCII, the help topics first."""
    before = set(sys.modules)
    text = build_text()
    assert before == set(sys.modules)
    assert 1_000_000 < len(text) < 4_000_000
    assert text.startswith(b'The "assert" statement')
    assert sum(byte < 128 for byte in text) / len(text) > 0.99
