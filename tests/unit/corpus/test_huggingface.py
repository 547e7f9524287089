"""bt_p2p.corpus.huggingface."""

from __future__ import annotations

import json
import sys
import types

import pytest

from bt_p2p.corpus.huggingface import huggingface_text
from bt_p2p.errors import ConfigError


class Rows:
    """What `load_dataset` returns, as far as we use it."""

    def __init__(self, columns: dict[str, list[str | None]]) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def __getitem__(self, name: str) -> list[str | None]:
        return self._columns[name]


@pytest.fixture
def hub(monkeypatch):
    """The library's entry point: records what it is asked, answers `hub.rows`."""
    fake = types.SimpleNamespace(rows=Rows({"text": ["a", None, "", "b"]}), asked=[])

    def load_dataset(path, config, *, split, cache_dir):
        fake.asked.append((path, config, split, cache_dir))
        if isinstance(fake.rows, Exception):
            raise fake.rows
        return fake.rows

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return fake


def test_the_text_column_is_joined_by_newlines(hub, tmp_path):
    """Missing values are left out."""
    assert b"a\n\nb" == huggingface_text("wiki:raw", split="test", cache_dir=tmp_path)
    assert [("wiki", "raw", "test", str(tmp_path))] == hub.asked


def test_a_name_without_a_colon_has_no_config(hub):
    """The data set's default, training part."""
    huggingface_text("owner/wiki")
    assert [("owner/wiki", None, "train", None)] == hub.asked


def test_a_local_folder_may_have_a_colon(hub, tmp_path):
    """A path that exists is never cut."""
    folder = tmp_path / "a:b"
    folder.mkdir()
    huggingface_text(str(folder))
    assert (str(folder), None) == hub.asked[0][:2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Rows({"content": ["a"]}), "no column 'text', only content"),
        (Rows({"text": []}), "is empty"),
        (FileNotFoundError("no such\n data set"), "FileNotFoundError: no such data set"),
    ],
)
def test_unusable_data_sets_are_refused(hub, rows, message):
    """Always one line that names the data set."""
    hub.rows = rows
    with pytest.raises(ConfigError, match=message) as info:
        huggingface_text("wiki")
    assert "wiki" in str(info.value)
    assert "\n" not in str(info.value)


def test_a_missing_extra_says_what_to_install(monkeypatch):
    """The exact pip line."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'bt-p2p\[hf\]'"):
        huggingface_text("wiki")


def test_a_missing_name_is_refused():
    """Before anything is imported."""
    with pytest.raises(ConfigError, match="no data set name"):
        huggingface_text("")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tiny_local_data_set_loads_through_the_real_library(tmp_path):
    """Two rows of JSON, no network."""
    pytest.importorskip("datasets")
    folder = tmp_path / "tiny"
    folder.mkdir()
    rows = [{"text": "first line"}, {"text": "second \u00e9"}]
    (folder / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    text = huggingface_text(str(folder), cache_dir=tmp_path / "cache")
    assert "first line\nsecond \u00e9" == text.decode()
