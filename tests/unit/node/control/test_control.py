"""Commands over the control socket: obeyed at once, and only if they are the user's own."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bt_p2p.errors import ConfigError
from bt_p2p.testing.clock import ManualClock
from node.cli import app
from node.commands.control import parse_duration_s
from node.control import server as server_module
from node.control.client import NodeNotReachedError, ask_node
from node.control.messages import MAX_LINE_BYTES, Request
from node.control.server import ControlServer
from node.control.socket import SOCKET_NAME, short_path
from node.manners.manners import Manners
from node.manners.settings import Settings
from node.snapshot import NodeSnapshot, write_snapshot

SNAPSHOT = NodeSnapshot(pid=os.getpid(), peer_id="me", run_id="run", block=2, state="training")


@contextmanager
def running(folder: Path, *, user_id: int | None = None) -> Iterator[Manners]:
    """A node, as far as commands see it."""
    clock = ManualClock()
    manners = Manners(Settings(on_battery="train"), folder, clock)
    server = ControlServer(folder, manners, lambda: SNAPSHOT, clock, user_id=user_id)
    server.start()
    try:
        yield manners
    finally:
        server.stop(timeout_s=10)


def send(folder: Path, data: bytes) -> bytes:
    """Raw bytes to the socket; what comes back before it closes or a line ends."""
    with socket.socket(socket.AF_UNIX) as connection, short_path(folder) as path:
        connection.settimeout(10)
        connection.connect(path)
        received = b""
        try:
            connection.sendall(data)
            while not received.endswith(b"\n") and (more := connection.recv(4096)):
                received += more
        except ConnectionError:
            pass  # closed with some of ours unread
        return received


def test_commands_change_what_holds(tmp_path):
    """Each answer says what holds after it."""
    with running(tmp_path) as manners:
        paused = ask_node(tmp_path, Request(op="pause"))
        assert ("user", 2, "training") == (paused.pause_reason, paused.block, paused.state)
        assert manners.is_paused
        snoozed = ask_node(tmp_path, Request(op="snooze", duration_s=60))
        assert ("snoozed", ManualClock().now_s() + 60) == (
            snoozed.pause_reason,
            snoozed.pause_until_s,
        )
        assert ask_node(tmp_path, Request(op="finish")).is_finishing
        resumed = ask_node(tmp_path, Request(op="resume"))
        assert ("", False) == (resumed.pause_reason, resumed.is_finishing)
        assert not manners.is_paused


def test_only_the_user_may_open_the_socket(tmp_path):
    """By its mode, and by asking the system who is there."""
    with running(tmp_path):
        assert 0o600 == stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode)
    with running(tmp_path, user_id=os.geteuid() + 1) as manners:
        with pytest.raises(NodeNotReachedError, match=r"own user|does not answer"):
            ask_node(tmp_path, Request(op="pause"))
        assert not manners.is_paused


def test_a_socket_of_a_killed_node_is_replaced(tmp_path):
    """And none is left by one that ended in order."""
    with socket.socket(socket.AF_UNIX) as left, short_path(tmp_path) as path:
        left.bind(path)
    with pytest.raises(NodeNotReachedError, match="no node runs"):
        ask_node(tmp_path, Request(op="look"))
    with running(tmp_path):
        assert "training" == ask_node(tmp_path, Request(op="look")).state
    assert not (tmp_path / SOCKET_NAME).exists()


def test_long_state_folders_work(tmp_path):
    """The system takes 108 bytes for the name of a socket."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with running(folder):
        assert "training" == ask_node(folder, Request(op="look")).state


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b'{"op": "format"}', b'{"op": 1}', b'{"op": "pause", "x": 1}', b"\xff"],
)
def test_what_is_no_command_is_refused_and_changes_nothing(tmp_path, line):
    """With a reason; the node goes on listening."""
    with running(tmp_path) as manners:
        assert b'"error":""' not in send(tmp_path, line + b"\n")
        assert not manners.is_paused
        assert "training" == ask_node(tmp_path, Request(op="look")).state


def test_a_line_over_the_cap_is_not_read_to_its_end(tmp_path):
    """The connection closes without an answer."""
    with running(tmp_path) as manners:
        line = b'{"op": "pause"' + b" " * 4 * MAX_LINE_BYTES + b"}\n"
        assert b"" == send(tmp_path, line)
        assert not manners.is_paused


def test_who_says_nothing_is_dropped_and_holds_nobody_up(tmp_path, monkeypatch):
    """Others are answered meanwhile."""
    monkeypatch.setattr(server_module, "ANSWER_TIMEOUT_S", 0.3)
    with running(tmp_path), socket.socket(socket.AF_UNIX) as silent, short_path(tmp_path) as path:
        silent.settimeout(10)
        silent.connect(path)
        assert "training" == ask_node(tmp_path, Request(op="look")).state
        assert b"" == silent.recv(1)


def test_the_commands_say_what_holds(tmp_path):
    """As text, as JSON, and as one line of error."""
    run = CliRunner().invoke
    with running(tmp_path):
        paused = run(app, ["pause", "--state-dir", str(tmp_path)])
        assert "does not train: paused by you" in paused.stdout
        assert "others still get its block" in paused.stdout
        snoozed = run(app, ["snooze", "2h", "--state-dir", str(tmp_path), "--json"])
        assert '"pause_reason":"snoozed"' in snoozed.stdout
        finishing = run(app, ["finish", "--state-dir", str(tmp_path)])
        assert "leaves now" in finishing.stdout
        resumed = run(app, ["resume", "--state-dir", str(tmp_path)])
        assert resumed.stdout.endswith(" trains\n")


def test_a_node_without_a_socket_is_told_from_none(tmp_path):
    """It starts or ends; trying again helps."""
    with pytest.raises(NodeNotReachedError, match="start one with bt-node join"):
        ask_node(tmp_path / "none", Request(op="look"))
    write_snapshot(tmp_path, SNAPSHOT.model_copy(update={"state": "joining"}))
    with pytest.raises(NodeNotReachedError, match="is joining and takes no commands now"):
        ask_node(tmp_path, Request(op="look"))


@pytest.mark.parametrize(
    ("text", "expected"), [("2h", 7200.0), ("90m", 5400.0), ("1h30m", 5400.0), ("0.5h", 1800.0)]
)
def test_durations_are_read_as_people_write_them(text, expected):
    """Units are needed."""
    assert expected == parse_duration_s(text)


@pytest.mark.parametrize("text", ["", "2", "2 h", "-1h", "0s", "400d", "h"])
def test_durations_that_make_no_sense_are_refused(text):
    """With an example, or the limit."""
    with pytest.raises(ConfigError, match=r"duration '?"):
        parse_duration_s(text)
