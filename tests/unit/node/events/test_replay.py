"""Events -> scenes, and the clock that passes them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bt_p2p.errors import ConfigError
from bt_p2p.testing.clock import ManualClock
from node.cli import app
from node.command_line import run_app
from node.events.event import EVENT_CLASSES, JoinFailed, LinesLost, PeerLeft
from node.events.log import EventLog
from node.events.replay import Player, ReplayClock, last_scene
from node.tui.canvas import Canvas
from node.tui.event_words import event_words
from node.tui.panels import dashboard
from tests.unit.node.events.conftest import (
    MANIFEST,
    ME,
    OTHER,
    START_S,
    round_finished,
    started,
)


def write(path: Path, events) -> Path:
    """A log of these events."""
    log = EventLog(path, ManualClock())
    for event in events:
        log.write(event)
    return path


def replay(monkeypatch, *arguments: str) -> int:
    """The command."""
    monkeypatch.setattr("sys.argv", ["bt-node", "replay", *arguments])
    return run_app(app, "bt-node")


def test_the_last_scene_is_what_was_shown(life):
    """Node, blocks, peers and warnings."""
    scene = last_scene(life)
    node = scene.snapshot
    assert node is not None
    assert (ME, MANIFEST.run_id, 0, "training", 2) == (
        node.peer_id, node.run_id, node.block, node.state, node.round_index,
    )  # fmt: skip
    assert ([5.0, 2.5], 2, 10.0, ["disk-low: only 3 MiB are free"]) == (
        node.loss_history, node.rounds_averaged, node.first_average_s,
        [reason.line for reason in node.noted],
    )  # fmt: skip
    overview = scene.overview(now_s=START_S + 20)
    assert overview is not None
    assert [[ME], [OTHER]] == [
        [lease.peer_id for lease in block.holders] for block in overview.blocks[:2]
    ]
    assert 3.0 == overview.blocks[1].loss


def test_the_dashboard_draws_a_scene(life):
    """As it draws a live swarm."""
    scene = last_scene(life)
    now_s = START_S + 21
    text = io.StringIO()
    console = Console(file=text, width=100, height=40)
    console.print(
        dashboard(
            scene.overview(now_s=now_s),
            scene.snapshot,
            now_s=now_s,
            canvas=Canvas(width=100, height=40, ascii_only=True),
        )
    )
    assert MANIFEST.run_id[:20] in text.getvalue()
    assert "only 3 MiB are free" in text.getvalue()


def test_a_player_shows_what_had_happened_by_then(life):
    """Moments go forward."""
    player = Player(life)
    assert player.scene(now_s=START_S - 1).snapshot is None
    assert 0 == player.scene(now_s=START_S + 5).snapshot.round_index
    assert 1 == player.scene(now_s=START_S + 11).snapshot.round_index


def test_a_peer_that_left_and_a_node_that_ended_are_gone(life, stopped):
    """At once."""
    scene = last_scene([*life, PeerLeft(at_s=START_S + 21, peer_id=OTHER, block=1)])
    assert [ME] == [peer.peer_id for peer in scene.peers]
    assert last_scene([*life, stopped(START_S + 30)]).snapshot is None


def test_a_repeated_start_starts_nothing(life):
    """It only makes a file readable alone."""
    repeated = started(START_S + 30, is_repeated=True)
    assert 2 == last_scene([*life, repeated]).snapshot.round_index
    alone = last_scene([repeated, round_finished(3, START_S + 31)])
    assert 3 == alone.snapshot.round_index


def test_a_start_that_cannot_be_read_shows_nothing_and_is_counted(life):
    """Such as one whose manifest was edited."""
    scene = last_scene([started(manifest={"model": 3}), *life[1:]])
    assert (None, None, 1) == (scene.snapshot, scene.manifest, scene.num_unreadable)


def test_the_clock_runs_faster_skips_pauses_between_programs_and_ends(life, stopped):
    """Five seconds are left of a night."""
    real = ManualClock(50.0)
    night_s = 30_000.0
    events = [*life, stopped(START_S + 30), started(START_S + 30 + night_s)]
    clock = ReplayClock(events, real, speed=10.0)
    assert START_S == clock.now_s()
    real.advance(2.0)
    assert START_S + 20 == clock.now_s()
    real.advance(1.5)
    assert START_S + 30 + night_s == clock.now_s()
    assert clock.is_over
    real.advance(100.0)
    assert START_S + 30 + night_s == clock.now_s()


def test_a_pipe_gets_the_last_events_and_the_end_as_text(tmp_path, life, monkeypatch, capsys):
    """With what was skipped."""
    path = write(tmp_path / "events.jsonl", life)
    with path.open("ab") as file:
        file.write(b'{"version":1,"kind":"moon","at_s":3}\n{"vers')
    assert 0 == replay(monkeypatch, str(path))
    text = capsys.readouterr().out
    assert f"replay of {path}: {len(life)} events" in text
    assert "skipped: unknown kind 'moon': 1; torn last line: 1" in text
    assert "first accepted contribution after 10.0 s" in text
    assert "warning: disk-low: only 3 MiB are free" in text
    assert "\x1b" not in text


def test_a_state_folder_gives_its_whole_log(tmp_path, life, monkeypatch, capsys):
    """The files that were moved aside come first."""
    write(tmp_path / "events.jsonl.1", life[:6])
    write(tmp_path / "events.jsonl", life[6:])
    assert 0 == replay(monkeypatch, str(tmp_path), "--json")
    document = json.loads(capsys.readouterr().out)
    assert (len(life), 2) == (document["num_events"], document["status"]["node"]["round"])


def test_json_is_one_document(tmp_path, life, monkeypatch, capsys):
    """The end in the form of `status --json`."""
    path = write(tmp_path / "events.jsonl", life)
    assert 0 == replay(monkeypatch, str(path), "--json")
    document = json.loads(capsys.readouterr().out)
    assert (len(life), START_S, {}) == (
        document["num_events"], document["first_at_s"], document["skipped"],
    )  # fmt: skip
    assert (2, [5.0, 2.5]) == (
        document["status"]["node"]["round"], document["status"]["node"]["loss_history"],
    )  # fmt: skip


def test_a_log_of_joins_that_failed_is_told_without_a_swarm(tmp_path, monkeypatch, capsys):
    """Nobody was in one."""
    event = JoinFailed(at_s=START_S, cause="no-peer-answers", words="none answers")
    assert 0 == replay(monkeypatch, str(write(tmp_path / "events.jsonl", [event])))
    text = capsys.readouterr().out
    assert "join failed (no-peer-answers): none answers" in text
    assert "no node was in a swarm in this log" in text
    assert "no answer" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "missing.jsonl cannot be read (No such file or directory); name"),
        (["log.txt"], "log.txt is no event log: none of its lines is an event; name"),
        (
            ["newer.jsonl"],
            "newer.jsonl has no event that this version knows: unknown kind 'moon': 1",
        ),
        (["."], ". has no events.jsonl; name the state folder of a node, or a log"),
        (["good.jsonl", "--speed", "0"], "--speed is 0.0, but time has to pass: give a number"),
        (["good.jsonl", "--speed", "nan"], "--speed is nan, but time has to pass: give a number"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(
    tmp_path, life, monkeypatch, capsys, arguments, message
):
    """And exit code 2."""
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text("hello\nworld\n")
    Path("newer.jsonl").write_text('{"version":1,"kind":"moon","at_s":3}\n')
    write(Path("good.jsonl"), life)
    assert 2 == replay(monkeypatch, *arguments)
    error = capsys.readouterr().err
    assert f"bt-node: error: {message}" in error
    assert 1 == error.count("\n")


def test_no_event_cannot_be_played():
    """There is no moment to begin at."""
    with pytest.raises(ConfigError):
        ReplayClock([], ManualClock(), speed=1.0)


def test_every_kind_has_words(life):
    """A line for people."""
    assert all(event_words(event) for event in life)
    assert "3 events are missing: the disk did not take them" == event_words(
        LinesLost(at_s=1.0, num=3)
    )
    assert len(EVENT_CLASSES) == len({each.model_fields["kind"].default for each in EVENT_CLASSES})
