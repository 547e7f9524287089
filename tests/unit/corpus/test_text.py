"""bt_p2p.corpus.text."""

from __future__ import annotations

import pytest

from bt_p2p.corpus import text as text_module
from bt_p2p.corpus.text import read_text
from bt_p2p.errors import ConfigError


def test_a_file_is_read_byte_for_byte(tmp_path):
    """Any bytes, any suffix."""
    (tmp_path / "data.bin").write_bytes(b"\x00\xff\r\n")
    assert b"\x00\xff\r\n" == read_text(tmp_path / "data.bin")


def test_a_folder_is_its_text_files_in_order_of_names(tmp_path):
    """Other files and sub-folders do not count."""
    for name, data in [("b.txt", b"B"), ("a.md", b"A"), ("c.TXT", b"C"), ("d.bin", b"D")]:
        (tmp_path / name).write_bytes(data)
    (tmp_path / "inner.txt").mkdir()
    assert b"ABC" == read_text(tmp_path)


def test_a_missing_path_is_refused(tmp_path):
    """With the path in the message."""
    with pytest.raises(ConfigError, match=r"no text at .*nowhere"):
        read_text(tmp_path / "nowhere")


def test_a_folder_without_text_is_refused(tmp_path):
    """It says which files it looks for."""
    with pytest.raises(ConfigError, match=r"no \*\.txt or \*\.md files"):
        read_text(tmp_path)


def test_an_empty_text_is_refused(tmp_path):
    """An empty file is a mistake, not a corpus."""
    (tmp_path / "empty.txt").write_bytes(b"")
    for path in (tmp_path, tmp_path / "empty.txt"):
        with pytest.raises(ConfigError, match="is empty"):
            read_text(path)


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    """The message carries the system's reason."""
    (tmp_path / "a.txt").write_bytes(b"A")

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(text_module.Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match=r"cannot read the text .*a\.txt: .*Permission denied"):
        read_text(tmp_path)
