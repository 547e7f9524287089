"""The dashboard on a real terminal: a pseudo-terminal of the kernel, with an emulator behind it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte
import pytest

from bt_p2p.clock import SystemClock
from node.events.log import EventLog
from node.tui.canvas import Canvas
from node.tui.panels import dashboard
from tests.unit.node.events.conftest import a_life

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
DEADLINE_S = 20.0
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """A terminal, and the dashboard in it."""

    def __init__(
        self,
        *arguments: str,
        width: int = 80,
        height: int = 24,
        program: Sequence[str] = (str(HERE / "shown_dashboard.py"),),
        **environment: str,
    ):
        self.ours, self.theirs = pty.openpty()
        self.emulator = pyte.Screen(width, height)
        self.stream = pyte.ByteStream(self.emulator)
        self.written = b""
        self.resize(width, height)
        self.settings = termios.tcgetattr(self.theirs)
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env={**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, width, height):
        """Change the window; the kernel tells the program."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.emulator.resize(height, width)

    def type(self, text):
        """As a person would."""
        os.write(self.ours, text.encode())

    @property
    def text(self):
        """What a person sees."""
        return "\n".join(line.rstrip() for line in self.emulator.display).rstrip()

    def read(self, timeout_s=0.05):
        """Take in what was written."""
        ready, _, _ = select.select([self.ours], [], [], timeout_s)
        if not ready:
            return
        try:
            piece = os.read(self.ours, 65536)
        except OSError:  # the other end is closed
            return
        self.written += piece
        self.stream.feed(piece)

    def wait_for(self, condition, what):
        """Read until something is the case."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"{what} never came; the screen:\n{self.text}"
            self.read()

    def wait_text(self, expected):
        """Read until exactly this is on the screen."""
        self.wait_for(lambda: expected == self.text, expected)

    def wait_end(self):
        """Read until the program has ended; its exit code."""
        self.wait_for(lambda: self.process.poll() is not None, "the end")
        while select.select([self.ours], [], [], 0)[0]:
            before = len(self.written)
            self.read()
            if len(self.written) == before:
                break
        return self.process.returncode

    def is_restored(self):
        """Whether the terminal is as it was: screen, cursor, line wrap, echo."""
        return (
            self.written.rfind(LEAVE) > self.written.rfind(ENTER) >= 0
            and not self.emulator.cursor.hidden
            and pyte.modes.DECAWM in self.emulator.mode
            and self.settings == termios.tcgetattr(self.theirs)
        )

    def close(self):
        """End what is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in (self.ours, self.theirs):
            if end >= 0:
                os.close(end)


@pytest.fixture
def terminal():
    """Opens terminals; closes them after the test."""
    opened = []

    def open_one(*arguments, **options):
        opened.append(Terminal(*arguments, **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def expected(draw, healthy, node, now_s):
    """What should be on a screen of some size."""

    def text_of(width, height, *, ascii_only=False):
        canvas = Canvas(width=width, height=height, ascii_only=ascii_only)
        return draw(dashboard(healthy, node(), now_s=now_s, canvas=canvas), width, height).rstrip()

    return text_of


@pytest.mark.parametrize(
    ("typed", "number", "code"),
    [
        ("q", None, 0),
        ("\x03", None, signal.SIGINT),
        ("\x1c", None, signal.SIGQUIT),
        ("", signal.SIGTERM, signal.SIGTERM),
        ("", signal.SIGHUP, signal.SIGHUP),
    ],
)
def test_terminal_is_restored_however_it_ends(terminal, expected, typed, number, code):
    """By a key, by Ctrl-C, by Ctrl-\\, or by a signal from elsewhere."""
    shown = terminal()
    shown.wait_text(expected(80, 24))
    assert shown.emulator.cursor.hidden
    if number is not None:
        shown.process.send_signal(number)
    shown.type(typed)
    assert code == shown.wait_end()
    assert shown.is_restored()


@pytest.mark.slow
def test_a_past_run_is_shown_to_its_end(terminal, tmp_path):
    """By `bt-node replay`, from the log of its events."""
    log = EventLog(tmp_path / "events.jsonl", SystemClock())
    for event in a_life():
        log.write(event)
    shown = terminal(
        "replay", str(tmp_path / "events.jsonl"), "--speed", "40", program=("-m", "node")
    )
    shown.wait_for(lambda: "the end; q leaves" in shown.text, "the end")
    shown.wait_for(lambda: "only 3 MiB are free" in shown.text, "the warning")
    assert "2 averaged" in shown.text
    shown.type("q")
    assert 0 == shown.wait_end()
    assert shown.is_restored()


def test_terminal_is_restored_after_a_fault(terminal):
    """The traceback is on the usual screen, where it can be read."""
    shown = terminal("fail")
    assert 1 == shown.wait_end()
    assert shown.is_restored()
    assert b"ZeroDivisionError: as asked" in shown.written.rpartition(LEAVE)[2]


def test_window_may_change_its_size(terminal, expected):
    """Whatever the size becomes, the screen is exactly what fits; then it asks for room."""
    shown = terminal()
    for width, height in [(80, 24), (120, 40), (60, 15), (41, 9), (100, 31)]:
        shown.resize(width, height)
        shown.wait_text(expected(width, height))
    shown.resize(20, 4)
    shown.wait_text("enlarge to 60x15")


def test_suspended_dashboard_gives_the_terminal_back(terminal, expected):
    """Ctrl-Z shows the shell's screen; continued, the dashboard is whole again."""
    shown = terminal()
    shown.wait_text(expected(80, 24))
    shown.type("\x1a")
    shown.wait_for(lambda: LEAVE in shown.written, "the usual screen")

    def is_stopped():
        stat = Path(f"/proc/{shown.process.pid}/stat").read_text(encoding="ascii")
        return stat.rpartition(")")[2].split()[0] == "T"

    shown.wait_for(is_stopped, "the stop")
    assert shown.is_restored()
    shown.emulator.reset()
    shown.process.send_signal(signal.SIGCONT)
    shown.wait_text(expected(80, 24))
    assert shown.emulator.cursor.hidden


def test_ascii_locale_and_no_color(terminal, expected):
    """Only ASCII is sent, and no colours, though styles such as bold stay."""
    shown = terminal(PYTHONIOENCODING="ascii", NO_COLOR="1")
    shown.wait_text(expected(80, 24, ascii_only=True))
    assert shown.written.isascii()
    colours = {cell.fg for row in shown.emulator.buffer.values() for cell in row.values()}
    assert {"default"} == colours
    assert any(cell.bold for row in shown.emulator.buffer.values() for cell in row.values())


def test_terminal_that_disappears_ends_it(terminal, expected):
    """Nobody looks any more: the program ends by itself."""
    shown = terminal()
    shown.wait_text(expected(80, 24))
    os.close(shown.theirs)
    os.close(shown.ours)
    shown.ours = shown.theirs = -1
    shown.process.wait(DEADLINE_S)
    assert shown.process.returncode in {0, signal.SIGHUP}
