"""node.demo.folder: the demo removes files of a demo, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_p2p.errors import ConfigError
from node.demo.folder import MARK, make_empty


def names(folder: Path) -> list[str]:
    """What is in it."""
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_of_a_demo_is_emptied(tmp_path: Path) -> None:
    """What links in it lead to stays."""
    outside, folder = tmp_path / "outside", tmp_path / "deep" / "demo"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    make_empty(folder)
    (folder / "volunteer-1").mkdir()
    (folder / "volunteer-1" / "node.log").write_bytes(b"log")
    (folder / "link").symlink_to(outside)
    make_empty(folder)
    assert [MARK] == names(folder)
    assert ["kept"] == names(outside)


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    """As from mktemp."""
    make_empty(tmp_path)
    assert [MARK] == names(tmp_path)


def test_a_folder_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    """One line says what to do."""
    (tmp_path / "thesis.tex").write_bytes(b"years of work")
    with pytest.raises(ConfigError, match=r"is not empty and not of a demo.*--folder"):
        make_empty(tmp_path)
    assert ["thesis.tex"] == names(tmp_path)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    """It stays, too."""
    path = tmp_path / "file"
    path.write_bytes(b"text")
    with pytest.raises(ConfigError, match="--folder"):
        make_empty(path)
    assert b"text" == path.read_bytes()
