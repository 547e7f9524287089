"""May the node train now, and if not, why and until when."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from node.manners.decision import Facts, PauseReason, decide
from node.manners.settings import Settings, parse_hours, parse_size
from node.manners.wishes import Wishes

ZONE = timezone(timedelta(hours=2))
NIGHT = "22:00-07:00"


def at(hour: int, minute: int = 0, day: int = 2) -> float:
    """A moment of 2 December 2026 on the user's clock."""
    return datetime(2026, 12, day, hour, minute, tzinfo=ZONE).timestamp()


def ask(settings: Settings | None = None, wishes: Wishes | None = None, **facts):
    """The decision at noon, unless told otherwise."""
    facts.setdefault("now_s", at(12))
    return decide(settings or Settings(), wishes or Wishes(), Facts(zone=ZONE, **facts))


def test_without_rules_and_wishes_a_node_trains():
    """Nothing is set, and the machine is on mains."""
    assert ask() is None


def test_a_pause_lasts_until_it_is_taken_back():
    """Nobody can tell when that is."""
    pause = ask(wishes=Wishes(is_paused=True))
    assert pause is not None
    assert (PauseReason.USER, None) == (pause.reason, pause.until_s)
    assert "bt-node resume" in pause.words


@pytest.mark.parametrize(("now_s", "is_allowed"), [(at(13, 59), False), (at(14), True)])
def test_a_snooze_ends_by_itself(now_s, is_allowed):
    """At its very moment."""
    pause = ask(wishes=Wishes(snooze_until_s=at(14)), now_s=now_s)
    assert is_allowed == (pause is None)
    if pause is not None:
        assert (PauseReason.SNOOZED, at(14)) == (pause.reason, pause.until_s)
        assert "until 14:00" in pause.words


@pytest.mark.parametrize(
    ("hour", "minute", "is_allowed"),
    [(21, 59, False), (22, 0, True), (23, 59, True), (0, 0, True), (6, 59, True), (7, 0, False)],
)
def test_hours_over_midnight_hold_on_the_users_own_clock(hour, minute, is_allowed):
    """The first minute is in, the last is not."""
    assert is_allowed == (ask(Settings(hours=NIGHT), now_s=at(hour, minute)) is None)


def test_out_of_hours_it_says_when_the_next_ones_begin():
    """The nearest of several, on the next day if need be."""
    settings = Settings(hours="01:00-05:00, 12:00-13:00")
    noon, night = ask(settings, now_s=at(9)), ask(settings, now_s=at(14))
    assert noon is not None
    assert night is not None
    assert (at(12), at(1, day=3)) == (noon.until_s, night.until_s)
    assert PauseReason.OUT_OF_HOURS == noon.reason


@pytest.mark.parametrize(("rule", "is_allowed"), [("pause", False), ("train", True)])
def test_on_battery_the_users_rule_holds(rule, is_allowed):
    """Pausing is the default."""
    pause = ask(Settings(on_battery=rule), is_on_battery=True)
    assert is_allowed == (pause is None)
    assert "pause" == Settings().on_battery


def test_an_idle_only_node_waits_while_the_machine_is_busy():
    """And only an idle-only one."""
    busy = ask(Settings(idle_only=True), is_idle=False)
    assert busy is not None
    assert PauseReason.MACHINE_BUSY == busy.reason
    assert ask(Settings(idle_only=True), is_idle=True) is None
    assert ask(Settings(), is_idle=False) is None


def test_a_used_up_day_ends_at_midnight():
    """The last byte that is allowed uses it up."""
    settings = Settings(upload_bytes_per_day=1000)
    pause = ask(settings, uploaded_bytes=1000)
    assert pause is not None
    assert (PauseReason.UPLOAD_USED_UP, at(0, day=3)) == (pause.reason, pause.until_s)
    assert ask(settings, uploaded_bytes=999) is None


def test_what_was_asked_for_by_hand_is_told_first():
    """So that the user sees that the command arrived."""
    settings = Settings(hours=NIGHT, upload_bytes_per_day=1)
    paused = ask(settings, Wishes(is_paused=True), uploaded_bytes=2, is_on_battery=True)
    assert paused is not None
    assert PauseReason.USER == paused.reason
    resumed = ask(settings, uploaded_bytes=2, is_on_battery=True)
    assert resumed is not None
    assert PauseReason.UPLOAD_USED_UP == resumed.reason


@pytest.mark.parametrize("text", ["22-7", "22:00-22:00", "25:00-07:00", "20:00-24:30", "night"])
def test_hours_that_cannot_be_read_are_refused(text):
    """Rather than taken for none."""
    with pytest.raises(ValueError, match=r"22:00|no time of the day"):
        parse_hours(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("500", 500), ("500 kB", 500_000), ("2GiB", 2**31), ("1.5M", 1_500_000), (7, 7)],
)
def test_sizes_are_read_as_people_write_them(value, expected):
    """k is a thousand, Ki is 1024."""
    assert expected == parse_size(value)


@pytest.mark.parametrize("value", ["much", "-5", "5 XB", "1e9", ""])
def test_sizes_that_cannot_be_read_are_refused(value):
    """With an example."""
    with pytest.raises(ValueError, match="500 kB"):
        parse_size(value)
