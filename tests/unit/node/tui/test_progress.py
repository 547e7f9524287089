"""What `bt-node join` reports."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest
from rich.console import Console

from node.snapshot import NodeSnapshot
from node.tui import progress
from node.tui.progress import JoinReporter, event_lines

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
DEADLINE_S = 5.0
NO_ROUNDS = {"rounds_averaged": 0, "rounds_alone": 0, "rounds_failed": 0}
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


def pipe(encoding="utf-8"):
    """A console that writes to a pipe, in memory."""
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=80)


def terminal(**environ):
    """A console on a terminal, in memory."""
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=80,
        height=24,
        legacy_windows=False,
        _environ={"TERM": "xterm"} | environ,
    )


def written(console):
    """What was written to a pipe."""
    console.file.flush()
    return console.file.buffer.getvalue().decode()


def lines_of(console):
    """Lines written to a pipe, without their times."""
    lines = written(console).splitlines()
    assert all(re.match(STAMP, line) for line in lines)
    return [re.sub(STAMP, "", line, count=1) for line in lines]


def test_pipe_gets_a_line_for_each_event(node, now_s, clock):
    """Starting, training and finished rounds are lines; in between there is silence."""
    console = pipe()
    with JoinReporter(console, live=False, clock=clock) as reporter:
        reporter.line("joined story")
        reporter.update(node(state="joining", block=None, **NO_ROUNDS), now_s)
        reporter.update(node(**NO_ROUNDS), now_s)
        reporter.update(node(steps=1300, **NO_ROUNDS), now_s)
        reporter.update(node(state="averaging", **NO_ROUNDS), now_s)
        reporter.update(node(round_index=13, **NO_ROUNDS | {"rounds_averaged": 1}), now_s)
    assert [
        "joined story",
        "joining: no block yet",
        "training: block 1",
        "round 13: averaged with 1 replica; loss 2.044 nats/byte; 3.0 kB/s; 31.4 MB sent",
    ] == lines_of(console)


def test_pipe_gets_no_escape_codes(node, now_s, clock):
    """Strangers' words cannot control the terminal behind a pipe, and long lines stay whole."""
    console = pipe()
    hostile = "\x1b[2J[bold]x[/] " + "long " * 40
    with JoinReporter(console, live=True, clock=clock) as reporter:
        reporter.line(hostile)
        reporter.update(node(warnings=[hostile]), now_s)
    assert "\x1b" not in written(console)
    assert "[2J[bold]x[/] " + "long " * 40 == lines_of(console)[0]


@pytest.mark.parametrize("live", [False, True])
def test_ascii_locale_never_fails(node, now_s, clock, live):
    """On an ASCII stream everything is ASCII, with question marks where nothing is close."""
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, force_terminal=live, width=80, height=24, _environ={})
    accented = node(last_outcome="dropped: … caf\u00e9", warnings=["\u4e16\u754c"])
    with JoinReporter(console, live=live, clock=clock) as reporter:
        reporter.line("caf\u00e9")
        reporter.update(accented, now_s)
    text = written(console)
    assert "caf?" in text
    assert "warning: disk-low: ??" in text


def test_terminal_gets_a_panel_below_the_lines(node, now_s, clock):
    """On a terminal the panel is drawn last and the cursor is given back."""
    console = terminal()
    with JoinReporter(console, live=True, clock=clock) as reporter:
        reporter.update(node(), now_s)
        reporter.line("checkpoint saved")
    text = console.file.getvalue()
    assert text.index("checkpoint saved") < text.rindex("this node")
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)


def test_panel_is_drawn_at_most_four_times_a_second(node, now_s, clock):
    """Updates in between cost nothing; the last one is drawn at the end."""
    console = terminal()
    with JoinReporter(console, live=True, clock=clock) as reporter:
        for step in range(100):
            clock.passed_s = step / 100
            reporter.update(node(steps=step), now_s)
        assert 4 == console.file.getvalue().count("this node")
    assert "in 99 steps" in console.file.getvalue()


def test_dumb_terminal_gets_lines(node, now_s, clock):
    """A terminal that cannot redraw gets lines, no panel and no escape codes."""
    console = terminal(TERM="dumb")
    with JoinReporter(console, live=True, clock=clock) as reporter:
        reporter.update(node(**NO_ROUNDS), now_s)
    text = console.file.getvalue()
    assert text.endswith("training: block 1\n")
    assert "\x1b" not in text


def test_error_in_the_block_gives_the_terminal_back(node, now_s, clock):
    """Whatever ends the node, the cursor is shown again."""
    console = terminal()
    reporter = JoinReporter(console, live=True, clock=clock)

    def interrupted():
        with reporter:
            reporter.update(node(), now_s)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    text = console.file.getvalue()
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)


def test_reporter_may_be_used_from_other_threads(node, now_s, clock):
    """Lines of several threads all arrive, unbroken."""
    console = pipe()
    with JoinReporter(console, live=False, clock=clock) as reporter:
        threads = [
            threading.Thread(target=lambda: [reporter.line("x" * 50) for _ in range(20)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ["x" * 50] * 80 == lines_of(console)


def test_nothing_is_taken_over_before_the_first_snapshot(node, now_s, clock):
    """Until then children may be forked: standard streams and cursor are as they were."""
    console, stdout = terminal(), sys.stdout
    with JoinReporter(console, live=True, clock=clock) as reporter:
        reporter.line("starting")
        assert sys.stdout is stdout
        assert HIDE_CURSOR not in console.file.getvalue()
        reporter.update(node(), now_s)
        assert HIDE_CURSOR in console.file.getvalue()
    assert sys.stdout is stdout


def test_watched_node_is_drawn_without_updates(node, clock, monkeypatch):
    """A watched node is drawn by itself, and no longer once the reporter is closed."""
    monkeypatch.setattr(progress, "_WATCH_S", 0.005)
    console, reads = terminal(), threading.Semaphore(0)

    def read():
        reads.release()
        clock.passed_s += 1.0
        return node()

    with JoinReporter(console, live=True, clock=clock) as reporter:
        reporter.watch(read)
        for _ in range(3):
            assert reads.acquire(timeout=DEADLINE_S)
    drawn = console.file.getvalue()
    assert drawn.count("this node") >= 2
    reporter.update(node(), clock.now_s())
    assert drawn == console.file.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "join-progress"]


def test_watching_ends_where_the_terminal_is_gone(node, now_s, clock, monkeypatch):
    """A terminal that cannot be written to ends the watching, not the node."""
    monkeypatch.setattr(progress, "_WATCH_S", 0.005)
    failed = threading.Event()

    def read():
        failed.set()
        raise OSError(5, "Input/output error")

    with JoinReporter(pipe(), live=False, clock=clock) as reporter:
        reporter.watch(read)
        assert failed.wait(DEADLINE_S)


def test_first_round_is_told():
    """A first snapshot that already counts a round reports it."""
    after = NodeSnapshot(pid=1, peer_id="x", run_id="y", rounds_alone=1, last_outcome="alone")
    (line,) = event_lines(None, after, with_states=False)
    assert line.startswith("round 0: alone; loss - nats/byte")


def test_new_warning_is_one_line(node):
    """A warning is reported when it appears, not while it lasts."""
    calm, warned = node(), node(warnings=["training alone for 4 min"])
    expected = ["warning: disk-low: training alone for 4 min"]
    assert [expected, []] == [event_lines(calm, warned), event_lines(warned, warned)]


def test_rounds_alternate_without_lines(node):
    """Turning from training to averaging and back is no event."""
    training, averaging = node(), node(state="averaging")
    assert [[], []] == [event_lines(training, averaging), event_lines(averaging, training)]
