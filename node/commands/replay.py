"""`bt-node replay`: a past run from its event log, in the dashboard or as text."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.overview import SwarmOverview
from node import exit_codes
from node.events.event import Event
from node.events.history import History, read_history, read_log
from node.events.replay import Player, ReplayClock, Scene, last_scene
from node.log_setup import set_up_logging
from node.snapshot import NodeSnapshot
from node.state_dir import StateDir
from node.tui.dashboard import run_dashboard
from node.tui.event_words import event_words
from node.tui.format import plain
from node.tui.snapshot_text import status_document, status_text
from node.tui.terminal import can_redraw, is_ascii, make_console

_NUM_LAST_EVENTS = 20


def replay(path: Path, *, speed: float, once: bool, as_json: bool, debug: bool) -> int:
    """Show what an event log tells; returns the exit code.

    Raises:
        ConfigError: the file is no event log.
    """
    set_up_logging(is_debugging=debug)
    if not speed > 0:
        raise ConfigError(f"--speed is {speed}, but time has to pass: give a number above 0")
    history = read_log(StateDir(path).events_path) if path.is_dir() else read_history(path)
    if path.is_dir() and not (history.events or history.skipped):
        raise ConfigError(f"{path} has no events.jsonl; name the state folder of a node, or a log")
    if not history.events:
        raise ConfigError(f"{path} has no event that this version knows: {history.skipped_words()}")
    scene = last_scene(history.events)
    if scene.num_unreadable:
        history.skipped["start whose manifest is not valid"] = scene.num_unreadable
    if can_redraw(make_console()) and not once and not as_json and scene.manifest is not None:
        return _play(path, history, speed)
    text = _document(path, history, scene) if as_json else _text(path, history, scene)
    sys.stdout.write(text)
    sys.stdout.flush()
    return exit_codes.OK


def _play(path: Path, history: History, speed: float) -> int:
    clock = ReplayClock(history.events, SystemClock(), speed=speed)
    player = Player(history.events)

    def poll() -> tuple[SwarmOverview | None, NodeSnapshot | None]:
        now_s = clock.now_s()
        scene = player.scene(now_s=now_s)
        snapshot = scene.snapshot
        if snapshot is not None:  # it was not silent then, only its log was
            snapshot = snapshot.model_copy(update={"updated_at_s": now_s})
        return scene.overview(now_s=now_s), snapshot

    def notes() -> Sequence[str]:
        end = "the end; q leaves" if clock.is_over else f"{speed:g} times as fast"
        told = [f"replay of {path.name} at {_time(clock.now_s())}, {end}"]
        return [*told, *_skipped_notes(history)]

    ended_by = run_dashboard(
        poll,
        console=make_console(),
        stop=threading.Event(),
        refresh_s=0.25,
        notes=notes,
        clock=clock,
    )
    return exit_codes.OK if ended_by in {0, signal.SIGINT} else 128 + ended_by


def _text(path: Path, history: History, scene: Scene) -> str:
    ascii_only = is_ascii(sys.stdout)
    events = history.events
    lines = [
        f"replay of {path}: {len(events)} events, {_time(events[0].at_s)} to "
        f"{_time(events[-1].at_s)}",
        *_skipped_notes(history),
        "",
    ]
    shown = [event for event in events if event.kind != "swarm_seen"][-_NUM_LAST_EVENTS:]
    lines += [f"{_time(event.at_s)} {event_words(event)}" for event in shown]
    end = "at the end:" if scene.manifest else "no node was in a swarm in this log"
    lines += ["", end]
    clean = "".join(f"{plain(line, ascii_only=ascii_only).rstrip()}\n" for line in lines)
    if scene.manifest is None:
        return clean
    now_s = events[-1].at_s
    return clean + status_text(
        scene.overview(now_s=now_s),
        scene.snapshot,
        now_s,
        make_console().width,
        ascii_only=ascii_only,
    )


def _document(path: Path, history: History, scene: Scene) -> str:
    events: list[Event] = history.events
    now_s = events[-1].at_s
    document = {
        "file": str(path),
        "num_events": len(events),
        "first_at_s": events[0].at_s,
        "last_at_s": now_s,
        "skipped": history.skipped,
        "status": status_document(scene.overview(now_s=now_s), scene.snapshot, now_s),
    }
    return json.dumps(document) + "\n"


def _skipped_notes(history: History) -> list[str]:
    return [f"skipped: {words}"] if (words := history.skipped_words()) else []


def _time(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"
