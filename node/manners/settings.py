"""What a node may take of the machine it runs on, as its user says."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

_HOURS = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])-([01]?[0-9]|2[0-4]):([0-5][0-9])")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]?)(i?)B?", re.ASCII)
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}
_DAY_MINUTES = 24 * 60


class Hours(NamedTuple):
    """From one minute of the day to another, which may be on the next day."""

    start_minute: int
    end_minute: int

    def contains(self, minute: int) -> bool:
        """Whether a minute of the day is within; the end is not."""
        if self.start_minute < self.end_minute:
            return self.start_minute <= minute < self.end_minute
        return minute >= self.start_minute or minute < self.end_minute


def parse_hours(text: str) -> tuple[Hours, ...]:
    """Hours as people write them: "22:00-07:00, 12:00-13:00".

    Raises:
        ValueError: they cannot be read, or are of no length.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _HOURS.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not START-END; write 22:00-07:00")
        start = int(match[1]) * 60 + int(match[2])
        end = int(match[3]) * 60 + int(match[4])
        if end > _DAY_MINUTES or start == end:
            raise ValueError(f"{part!r} is no time of the day; leave hours out to allow all")
        found.append(Hours(start, end))
    return tuple(found)


def parse_size(value: object) -> object:
    """Bytes as people write them: 500000, "500 kB", "2GiB"; anything else is left as it is."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError('it is not a size; write 500000, "500 kB" or "2 GiB"')
    return round(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2]])


_Bytes = Annotated[int, BeforeValidator(parse_size), Field(gt=0, le=2**60)]


class Settings(BaseModel):
    """The user's rules. None, and empty hours, are no rule."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hours: str = Field(default="", description="train only then, in local time: 22:00-07:00")
    idle_only: bool = Field(
        default=False, description="train only while nothing else needs the CPU"
    )
    idle_load: float = Field(
        default=0.2, gt=0, le=1, description="share of the CPU that others may use in idle time"
    )
    idle_after_s: float = Field(
        default=60.0, ge=0, le=86_400, description="quiet for so long before it counts as idle"
    )
    on_battery: Literal["pause", "train"] = Field(
        default="pause", description="what to do on battery"
    )
    threads: int | None = Field(default=None, ge=1, le=4096, description="CPU threads")
    nice: int | None = Field(default=None, ge=0, le=19, description="19 gives way to everything")
    upload_bytes_per_s: _Bytes | None = Field(default=None, description="upload cap per second")
    upload_bytes_per_day: _Bytes | None = Field(default=None, description="upload cap per day")
    memory_bytes: _Bytes | None = Field(default=None, description="memory cap")

    @field_validator("hours")
    @classmethod
    def _readable(cls, text: str) -> str:
        parse_hours(text)
        return text
