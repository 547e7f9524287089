"""What holds now, over commands, time and restarts."""

from __future__ import annotations

import pytest

from bt_p2p.swarm.upload import UploadCap
from bt_p2p.testing.clock import ManualClock
from node.manners import manners as module
from node.manners.decision import PauseReason
from node.manners.machine import IdleWatch, LoadOfOthers, tree_memory_bytes
from node.manners.manners import Manners
from node.manners.settings import Settings
from node.manners.wishes import WISHES_NAME, Wishes, read_wishes, write_wishes


@pytest.fixture(autouse=True)
def mains(monkeypatch):
    """The machine that tests run on may be a laptop."""
    monkeypatch.setattr(module, "is_on_battery", lambda: False)


def reason_of(manners: Manners) -> PauseReason | None:
    """Why it is paused."""
    return None if manners.pause is None else manners.pause.reason


def test_a_pause_survives_a_restart(tmp_path):
    """And so do its being taken back, and a request to leave."""
    clock = ManualClock()
    Manners(Settings(), tmp_path, clock).ask(is_paused=True, is_finishing=True)
    again = Manners(Settings(), tmp_path, clock)
    assert (PauseReason.USER, True) == (reason_of(again), again.is_finishing)
    again.ask(is_paused=False)
    third = Manners(Settings(), tmp_path, clock)
    assert (None, True) == (reason_of(third), third.is_finishing)


def test_a_snooze_goes_on_after_a_restart_and_ends_in_time(tmp_path):
    """The wall clock counts, also while no node runs."""
    clock = ManualClock()
    Manners(Settings(), tmp_path, clock).ask(snooze_until_s=clock.now_s() + 100)
    clock.advance(99)
    again = Manners(Settings(), tmp_path, clock)
    assert PauseReason.SNOOZED == reason_of(again)
    clock.advance(1)
    again.look()
    assert reason_of(again) is None


def test_changes_are_told_once(tmp_path):
    """A look that finds nothing new tells nobody."""
    manners = Manners(Settings(), tmp_path, ManualClock())
    told = []
    manners.on_change(lambda: told.append(manners.is_paused))
    manners.ask(is_paused=True)
    manners.look()
    manners.ask(is_paused=True)
    manners.ask(is_paused=False)
    assert [True, False] == told


def test_a_command_is_obeyed_where_it_cannot_be_kept(tmp_path):
    """A full disk is told to whoever asked."""
    manners = Manners(Settings(), tmp_path / "gone", ManualClock())
    problem = manners.ask(is_paused=True)
    assert manners.is_paused
    assert "a restart will not know" in problem


@pytest.mark.parametrize("content", [b"", b"{", b'{"snooze_until_s": "x"}', b"[]", b"\xff"])
def test_a_damaged_file_asks_for_nothing(tmp_path, content):
    """A node is rather not paused than not started."""
    (tmp_path / WISHES_NAME).write_bytes(content)
    assert Wishes() == read_wishes(tmp_path)


def test_wishes_come_back_as_they_were(tmp_path):
    """All of them."""
    wishes = Wishes(is_paused=True, snooze_until_s=5.5, is_finishing=True, uploaded_bytes=7)
    write_wishes(tmp_path, wishes)
    assert wishes == read_wishes(tmp_path)


def test_the_upload_of_a_day_is_counted_over_restarts_and_forgotten_at_midnight(tmp_path):
    """Both processes of a node add to it."""
    clock = ManualClock()
    settings = Settings(upload_bytes_per_day=1000)
    cap = UploadCap(clock, max_bytes=1000)
    first = Manners(settings, tmp_path, clock, upload=cap)
    cap.take(600)
    first.stop(timeout_s=1)
    cap = UploadCap(clock, max_bytes=1000)
    again = Manners(settings, tmp_path, clock, upload=cap)
    assert (None, 600) == (reason_of(again), cap.sent_bytes)
    cap.take(400)
    again.look()
    assert (PauseReason.UPLOAD_USED_UP, True) == (reason_of(again), cap.is_used_up)
    clock.advance(86_400)
    again.look()
    assert (None, 0) == (reason_of(again), cap.sent_bytes)


def test_memory_over_the_cap_is_told(tmp_path):
    """No Python fits into a megabyte."""
    assert (
        "over the cap of 1 MiB"
        in Manners(Settings(memory_bytes=2**20), tmp_path, ManualClock()).memory_problem
    )
    assert not Manners(Settings(), tmp_path, ManualClock()).memory_problem
    assert 2**20 < tree_memory_bytes()


def test_idle_takes_a_while_and_busy_is_at_once():
    """Looks without an answer change nothing."""
    watch = IdleWatch(max_load=0.2, after_s=60)
    seen = [
        watch.see(load, now_s=now_s)
        for load, now_s in [
            (None, 0), (0.1, 10), (0.2, 69), (0.1, 70), (None, 75), (0.3, 80), (0.1, 90), (0.1, 150),
        ]
    ]  # fmt: skip
    assert [False, False, False, True, True, False, False, True] == seen


def test_the_load_of_others_is_a_share():
    """There is none before there is something to compare with."""
    load = LoadOfOthers()
    assert load.look() is None
    deadline = 0
    while (found := load.look()) is None and deadline < 10**7:
        deadline += 1
    assert found is not None
    assert 0 <= found <= 1
