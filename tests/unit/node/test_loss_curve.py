"""The loss curve: the best that is known, and said so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bt_p2p.errors import CheckpointError, ConfigError
from node.events.replay import last_scene
from node.loss_curve import CURVE_NAME, LossCurve, draw_curve, known_curve
from node.snapshot import NodeSnapshot
from tests.unit.node.events.conftest import MANIFEST, START_S, a_life, started

RUN_ID = MANIFEST.run_id


def test_own_rounds_are_exact_and_other_blocks_as_they_were_seen():
    """From the event log."""
    curve = known_curve(RUN_ID, a_life(), None, None)
    assert {0: {1: 5.0, 2: 2.5}, 1: {3: 3.0}} == curve.losses
    assert "event log" in curve.source


def test_events_of_another_run_are_left_out():
    """One log may hold several."""
    other = started(run_id="other-run")
    curve = known_curve(RUN_ID, [other, *a_life()[1:]], None, None)
    assert {} == curve.losses
    assert "the history is not known here" in curve.source


def test_without_a_log_the_last_rounds_of_a_running_node_are_taken():
    """They end at its round."""
    snapshot = NodeSnapshot(
        pid=1, peer_id="me", run_id=RUN_ID, block=1, round_index=12,
        loss_history=[3.0, float("nan"), 2.0],
    )  # fmt: skip
    curve = known_curve(RUN_ID, [], snapshot, None)
    assert {1: {10: 3.0, 12: 2.0}} == curve.losses
    assert "the last 2 rounds of block 1" in curve.source


def test_without_any_history_only_the_losses_now_are_shown_and_it_says_so():
    """Nobody keeps a history for others."""
    overview = last_scene(a_life()).overview(now_s=START_S)
    curve = known_curve(RUN_ID, [], None, overview)
    assert {0: {3: 2.0}, 1: {3: 3.0}} == curve.losses
    assert "the history is not known here" in curve.source


@pytest.mark.slow
@pytest.mark.parametrize("losses", [{}, {0: {1: 5.0}, 1: {1: 4.0, 2: 3.0}}])
def test_the_picture_is_drawn_without_a_display(tmp_path, losses):
    """A PNG, whatever there is to show."""
    draw_curve(LossCurve(losses=losses, source="a test"), RUN_ID, tmp_path / CURVE_NAME)
    assert b"\x89PNG" == (tmp_path / CURVE_NAME).read_bytes()[:4]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    """The model beside it is there already."""
    curve = LossCurve(losses={}, source="a test")
    with pytest.raises(CheckpointError, match="choose another folder with --out"):
        draw_curve(curve, RUN_ID, tmp_path / "missing" / CURVE_NAME)


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ConfigError, match=r"pip install 'bt-p2p\[plot\]'"):
        draw_curve(LossCurve(losses={}, source="a test"), RUN_ID, tmp_path / CURVE_NAME)


@pytest.mark.slow
def test_looking_back_loads_neither_torch_nor_hivemind():
    """`stats` answers at once."""
    code = (
        "import sys, node.commands.stats; "
        "assert not {'torch', 'hivemind', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[3]
    )
