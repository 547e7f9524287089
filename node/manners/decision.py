"""May the node train now, and if not, why and until when."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from node.manners.settings import Settings, parse_hours
from node.manners.wishes import Wishes


class PauseReason(enum.StrEnum):
    """Why a node does not train; the words of programs, so they stay as they are."""

    USER = "user"
    SNOOZED = "snoozed"
    UPLOAD_USED_UP = "upload_used_up"
    OUT_OF_HOURS = "out_of_hours"
    ON_BATTERY = "on_battery"
    MACHINE_BUSY = "machine_busy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the decision is made from, beside the user's rules and wishes."""

    now_s: float
    is_on_battery: bool = False
    is_idle: bool = True
    """Nothing else has needed the CPU for long enough."""
    uploaded_bytes: int = 0
    """Today."""
    zone: tzinfo | None = None
    """Of the user; None is the machine's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """The node may not train."""

    reason: PauseReason
    words: str
    """What it is, and what to do about it."""
    until_s: float | None = None
    """When that changes by itself; None if nobody can tell."""


def decide(settings: Settings, wishes: Wishes, facts: Facts) -> Pause | None:
    """None if the node may train; what the user asked for by hand comes first."""
    now = local_time(facts.now_s, facts.zone)
    if wishes.is_paused:
        return Pause(reason=PauseReason.USER, words="paused by you; go on with: bt-node resume")
    if wishes.snooze_until_s is not None and facts.now_s < wishes.snooze_until_s:
        until = local_time(wishes.snooze_until_s, facts.zone)
        return Pause(
            reason=PauseReason.SNOOZED,
            words=f"snoozed until {_clock(until, now)}; go on with: bt-node resume",
            until_s=wishes.snooze_until_s,
        )
    cap = settings.upload_bytes_per_day
    if cap is not None and facts.uploaded_bytes >= cap:
        midnight = _next(now, 0)
        return Pause(
            reason=PauseReason.UPLOAD_USED_UP,
            words=f"the day's upload of {cap} bytes is used up until {_clock(midnight, now)}; "
            f"allow more with upload_bytes_per_day",
            until_s=midnight.timestamp(),
        )
    hours = parse_hours(settings.hours)
    minute = now.hour * 60 + now.minute
    if hours and not any(each.contains(minute) for each in hours):
        opening = min(_next(now, each.start_minute) for each in hours)
        return Pause(
            reason=PauseReason.OUT_OF_HOURS,
            words=f"outside of {settings.hours} until {_clock(opening, now)}",
            until_s=opening.timestamp(),
        )
    if facts.is_on_battery and settings.on_battery == "pause":
        return Pause(
            reason=PauseReason.ON_BATTERY,
            words='the machine is on battery; plug it in, or set on_battery = "train"',
        )
    if settings.idle_only and not facts.is_idle:
        return Pause(
            reason=PauseReason.MACHINE_BUSY,
            words=f"other programs use over {settings.idle_load:.0%} of the CPU, or did within "
            f"{settings.idle_after_s:g} s",
        )
    return None


def local_time(at_s: float, zone: tzinfo | None) -> datetime:
    """A moment on the user's own clock."""
    return datetime.fromtimestamp(at_s, UTC).astimezone(zone)


def _next(now: datetime, minute: int) -> datetime:
    """The next time it is this minute of the day."""
    found = now.replace(hour=minute // 60, minute=minute % 60, second=0, microsecond=0)
    return found if found > now else found + timedelta(days=1)


def _clock(moment: datetime, now: datetime) -> str:
    """A moment in words: with its day, unless it is today."""
    return moment.strftime("%H:%M" if moment.date() == now.date() else "%a %d %b %H:%M")
