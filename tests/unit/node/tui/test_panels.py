"""The screen, as text."""

from __future__ import annotations

import io
import math
import re

import pytest
from rich.console import Console

from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.tui.canvas import Canvas
from node.tui.panels import dashboard, node_panel, num_peers_shown, warning_lines

SIZES = [(120, 40), (80, 24), (60, 15), (40, 12)]
HOSTILE = "[bold red]oops[/] :smile: \x1b[2J\x1b]0;title\x07 \u202eevil"


@pytest.fixture
def screen(draw, now_s):
    """Draws a dashboard and checks that it fits."""

    def text_of(overview, snapshot=None, *, width=80, height=24, ascii_only=False, **words):
        canvas = Canvas(width=width, height=height, ascii_only=ascii_only)
        text = draw(
            dashboard(overview, snapshot, now_s=now_s, canvas=canvas, **words), width, height
        )
        assert len(text.splitlines()) <= height
        assert max(map(len, text.splitlines())) <= width
        return text

    return text_of


@pytest.fixture
def troubled(swarm, lease):
    """Two blocks without holders, a stale peer, two that join, three bad records."""
    leases = [lease(1, 0), lease(3, 1, age_s=27.0), lease(7, None), lease(8, None)]
    return swarm(leases, num_blocks=4, num_invalid=3)


@pytest.fixture
def crowd(swarm, lease):
    """Two hundred peers on four blocks."""
    return swarm([lease(number, number % 4) for number in range(200)], num_blocks=4)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_healthy_swarm(screen, healthy, node, snapshot, width, height):
    """A node of one's own in a swarm without troubles."""
    assert snapshot == screen(healthy, node(), width=width, height=height)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_troubled_swarm(screen, troubled, node, snapshot, width, height):
    """Warnings come first, and leave room for the rest."""
    notes = ["no answer from the swarm for 12 s: asked 3 peers, none answered"]
    assert snapshot == screen(troubled, node(), width=width, height=height, notes=notes)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12)])
def test_troubled_swarm_in_ascii(screen, troubled, node, snapshot, width, height):
    """Without Unicode, frames, ids and curves are ASCII."""
    text = screen(troubled, node(), width=width, height=height, ascii_only=True)
    assert text.isascii()
    assert snapshot == text


def test_swarm_without_a_node_here(screen, healthy, snapshot):
    """Onlookers see the swarm alone."""
    assert snapshot == screen(healthy)


def test_empty_swarm(screen, swarm, snapshot):
    """Nobody is there: every block is a hole, and the first command is shown."""
    assert snapshot == screen(swarm([]))


def test_two_hundred_peers(screen, crowd, node, snapshot):
    """Holders that do not fit are counted, each block keeping some room."""
    text = screen(crowd, node())
    assert "1-5 of 200" in text
    assert snapshot == text


def test_peers_scroll_to_the_last_one(screen, crowd, node):
    """The window stops where its last row is the last peer."""
    text = screen(crowd, node(), first_peer=10_000)
    assert text.splitlines()[-1].startswith("…000199 ")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 15), (39, 5)])
def test_number_of_peers_shown_is_known(screen, crowd, node, now_s, width, height):
    """Who scrolls knows the size of the window."""
    canvas = Canvas(width=width, height=height)
    text = screen(crowd, node(), width=width, height=height)
    rows = [line for line in text.splitlines() if line.strip("│ ").startswith("…")]
    assert len(rows) == num_peers_shown(crowd, node(), now_s=now_s, canvas=canvas)


def test_blocks_have_curves_once_rounds_were_seen(screen, healthy, node):
    """The curve of a block is beside its loss."""
    text = screen(healthy, node(), trends={0: [4.0, 3.0, 2.0]}, ascii_only=True)
    (row,) = [line for line in text.splitlines() if line.startswith("    0 ")]
    assert " #=_ " in row


def test_colours_and_their_absence(healthy, node, now_s, snapshot):
    """With NO_COLOR the same text has styles, but no colours."""
    canvas = Canvas(width=80, height=24)
    texts = []
    for environment in ({}, {"NO_COLOR": "1"}):
        console = Console(
            file=io.StringIO(),
            force_terminal=True,
            width=80,
            height=24,
            _environ={"TERM": "xterm-256color", **environment},
        )
        console.print(dashboard(healthy, node(), now_s=now_s, canvas=canvas))
        texts.append(console.file.getvalue())
    coloured, plain = texts
    assert re.search(r"\x1b\[[0-9;]*3\dm", coloured)
    assert not re.search(r"\x1b\[[0-9;]*[34]\d[;m]", plain)
    assert snapshot == plain.replace("\x1b", "ESC")


def test_many_blocks(screen, swarm, lease, node, snapshot):
    """Blocks that do not fit are counted."""
    overview = swarm([lease(number, number % 60) for number in range(200)], num_blocks=60)
    assert snapshot == screen(overview, node())


def test_node_with_broken_loss(screen, healthy, node, snapshot):
    """A loss that is not a number is shown as what it is, with the node's own warnings."""
    broken = node(
        loss=math.nan,
        loss_history=[2.5, 2.4, math.nan, math.nan],
        warnings=["the loss is not a number; the block goes back to its last good weights"],
        last_outcome="dropped: weights are not finite",
        rounds_failed=2,
    )
    assert snapshot == screen(healthy, broken)


def test_reasons_have_codes_and_next_actions(screen, swarm, lease, node, snapshot):
    """Errors come before what the swarm lacks, warnings after it; notes stand with the node."""
    noted = [
        Reason(code=ReasonCode.DISK_LOW, evidence="3 MB free"),
        Reason(code=ReasonCode.SAME_KEY_ELSEWHERE, evidence="seen at 203.0.113.9"),
    ]
    paused = node(noted=noted, state="paused", pause_words="the battery is below 30%")
    text = screen(swarm([lease(3, 1)], num_blocks=2), paused, width=120, height=40)
    places = [text.index(words) for words in ("! same-key", "! block 0 has no", "! disk-low")]
    assert sorted(places) == places
    assert "paused: the battery is below 30%; next: nothing; it goes on when" in text
    assert snapshot == text


def test_node_that_starts(screen, node, snapshot):
    """Before the swarm answers, this node is shown with what it knows."""
    young = node(
        block=None,
        state="joining",
        loss=None,
        loss_history=[],
        round_ends_at_s=None,
        last_average_at_s=None,
        last_outcome="",
        addresses=[],
    )
    assert snapshot == screen(None, young, notes=["asking the swarm"])


def test_nothing_known_yet(screen, snapshot):
    """Before any answer there is only the note."""
    assert snapshot == screen(None, notes=["asking the swarm"])


def test_node_in_another_run(screen, healthy, node):
    """A node that works for another run is not mistaken for a holder here."""
    assert "in another run, other-run" in screen(healthy, node(run_id="other-run"))


def test_hostile_strings_are_shown_literally(screen, healthy, node, snapshot):
    """Markup is text, and escape codes do not reach the terminal."""
    hostile = node(
        run_id=HOSTILE,
        peer_id=HOSTILE,
        state=HOSTILE,
        device=HOSTILE,
        last_outcome=HOSTILE,
        addresses=[HOSTILE, f"/ip4/127.0.0.1/tcp/1/p2p/{HOSTILE}"],
        warnings=[HOSTILE],
        state_dir=HOSTILE,
    )
    text = screen(healthy, hostile, notes=[HOSTILE])
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "[bold red]oops[/] :smile:" in text
    assert snapshot == text


def test_hostile_peer_ids_are_shown_literally(screen, swarm, lease):
    """A holder's id cannot carry markup or escape codes either."""
    text = screen(swarm([lease(1, 0, peer_id="x[/b]\x1b[2J"), lease(2, None, peer_id="\x07[/]")]))
    assert "…b][2J" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(("width", "height"), [(39, 24), (80, 7), (10, 3), (1, 1)])
def test_tiny_screen_asks_for_room(screen, healthy, node, width, height):
    """Below 40x8 there is one line, cut to the width."""
    text = screen(healthy, node(), width=width, height=height)
    expected = "enlarge to 60x15" if width >= 16 else "enlarge to 60x15"[: width - 1] + "…"
    assert expected == text


@pytest.mark.parametrize("height", [8, 9, 11, 14, 18, 23, 50])
@pytest.mark.parametrize("width", [40, 59, 60, 81, 200])
def test_every_size_fits(screen, troubled, crowd, node, width, height):
    """Whatever the size, nothing is wider or higher than the screen."""
    warned = node(warnings=["the disk is nearly full", "x" * 300, "training alone for 4 min"])
    for overview in (troubled, crowd, None):
        for snapshot in (warned, None):
            text = screen(overview, snapshot, width=width, height=height)
            assert (overview is None) == (" peers, " not in text)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_node_panel_alone(draw, node, now_s, snapshot, width):
    """The panel of `join` has a few rows, the most important ones."""
    canvas = Canvas(width=width, height=24)
    assert snapshot == draw(node_panel(node(), now_s=now_s, canvas=canvas, max_rows=6), width, 24)


def test_node_panel_on_a_tiny_screen(draw, node, now_s):
    """Even a tiny screen shows the block and the state."""
    panel = node_panel(node(), now_s=now_s, canvas=Canvas(width=20, height=5))
    assert "block 1 training" == draw(panel, 20, 5)


def test_warnings_that_do_not_fit_are_counted():
    """The last line says how many warnings are missing."""
    lines = warning_lines(["one", "two", "three"], Canvas(width=40, height=8), max_lines=2)
    assert ["! one", "! 2 more warnings"] == [line.plain for line in lines]


def test_long_warning_is_cut_where_room_ends():
    """A warning too long for its lines ends in dots."""
    lines = warning_lines(["word " * 40], Canvas(width=40, height=8), max_lines=2)
    assert 2 == len(lines)
    assert lines[1].plain.endswith(("...", "…"))
