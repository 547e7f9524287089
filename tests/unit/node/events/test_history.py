"""Event logs, read again: what is no event is skipped and told."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bt_p2p.errors import ConfigError
from node.events.event import Resumed
from node.events.history import read_history, read_log

LINE = Resumed(at_s=1.0).model_dump_json().encode() + b"\n"


def test_a_torn_last_line_is_skipped_and_told(tmp_path):
    """A killed node leaves one."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(LINE + LINE[:20])
    history = read_history(path)
    assert [Resumed(at_s=1.0)] == history.events
    assert "torn last line: 1" == history.skipped_words()


def test_unknown_kinds_and_fields_are_of_newer_nodes(tmp_path):
    """A kind is skipped and told by its name, a field is ignored."""
    path = tmp_path / "events.jsonl"
    known = json.loads(LINE) | {"new_field": [1, 2]}
    unknown = {"version": 1, "kind": "flew_to_the_moon", "at_s": 2.0}
    newer = {"version": 2, "kind": "resumed", "at_s": 2.0}
    path.write_text("".join(json.dumps(each) + "\n" for each in (known, unknown, newer)))
    history = read_history(path)
    assert [Resumed(at_s=1.0)] == history.events
    assert {"unknown kind 'flew_to_the_moon'": 1, "unknown version '2'": 1} == history.skipped


@pytest.mark.parametrize("line", [b"null", b"[]", b'{"kind": 1}', b"\xff\xfe", b"[" * 5000, b"NaN"])
def test_a_damaged_line_is_skipped_and_told(tmp_path, line):
    """Wherever it is."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(line + b"\n" + LINE)
    history = read_history(path)
    assert ([Resumed(at_s=1.0)], {"damaged line": 1}) == (history.events, history.skipped)


@pytest.mark.parametrize(
    "content", [b"", b"2026-01-01 a line of a log\n", b"\x89PNG\r\n\x1a\n", b"{}\n"]
)
def test_a_file_that_is_no_event_log_is_one_clear_error(tmp_path, content):
    """It names the file and what to do."""
    path = tmp_path / "node.log"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"node\.log is no event log: .*; name the events\.jsonl"):
        read_history(path)


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    """A missing one, or a folder."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_history(tmp_path / "missing")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_history(tmp_path)


def test_a_log_without_files_is_empty(tmp_path):
    """Of a node that never ran here."""
    assert [] == read_log(tmp_path / "events.jsonl").events


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.binary(max_size=300))
def test_no_bytes_break_the_reader(tmp_path, data):
    """Whatever follows a good line, that line is found."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(LINE + data)
    assert Resumed(at_s=1.0) == read_history(path).events[0]
