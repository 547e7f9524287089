"""Numbers and strangers' strings as short text.

Everything returned is one line without control characters; with `ascii_only` also pure ASCII.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from bt_p2p.protocol.identity import short_peer_id

_UNKNOWN = "-"
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")

_SPARKS = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS = "_.:-=+*#"
_NOT_A_NUMBER_MARK = "x"

_MINUTE_S = 60.0
_HOUR_S = 60 * _MINUTE_S
_DAY_S = 24 * _HOUR_S

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Letters and marks that show as nothing; other invisible characters are controls."""
_MAX_MARKS = 2
"""Accents kept on one letter; more of them would run into the lines above and below."""

_IN_ASCII = str.maketrans(
    {
        "…": "...",
        "–": "-",  # noqa: RUF001  # typographic dashes and quotes are what is replaced here
        "—": "-",
        "‘": "'",  # noqa: RUF001
        "’": "'",  # noqa: RUF001
        "“": '"',
        "”": '"',
        "·": "-",
        "×": "x",  # noqa: RUF001
    }
)


def plain(text: str, *, ascii_only: bool = False) -> str:
    """A stranger's string as one harmless line.

    Control characters, escape sequences' first bytes, line breaks, bidirectional overrides,
    lone surrogates and what shows as nothing become spaces or vanish; of accents piled on one
    letter two stay. Visible characters stay, markup included.

    Args:
        text: anything.
        ascii_only: replace what ASCII lacks, by "?" where nothing is close.
    """
    kept: list[str] = []
    num_marks = 0
    for char in _INVISIBLE.sub("", text):
        category = unicodedata.category(char)
        is_mark = category in {"Mn", "Me"}
        num_marks = num_marks + 1 if is_mark else 0
        if char.isspace() or category in {"Zl", "Zp"}:
            kept.append(" ")
        elif category == "Cs":
            kept.append("?")
        elif not category.startswith("C") and num_marks <= _MAX_MARKS and (kept or not is_mark):
            kept.append(char)
    cleaned = "".join(kept)
    if ascii_only:
        return cleaned.translate(_IN_ASCII).encode("ascii", "replace").decode("ascii")
    return cleaned


def format_peer(peer_id: str, *, ascii_only: bool = False) -> str:
    """A peer id as people see it: its last six characters."""
    return plain(short_peer_id(peer_id), ascii_only=ascii_only)


def format_count(count: float) -> str:
    """A number of things: 950, 12,400, 3.1 M."""
    if abs(count) < 100_000:
        return f"{count:,.0f}"
    return _scaled(count, "")


def format_bytes(size_bytes: float) -> str:
    """A size: 512 B, 4.5 MB. Prefixes are powers of 1000."""
    return _scaled(size_bytes, "B")


def format_rate(bytes_per_s: float) -> str:
    """A speed: 3.2 kB/s."""
    return _scaled(bytes_per_s, "B/s")


def format_duration(duration_s: float) -> str:
    """A duration in its largest fitting unit: 45 s, 12 min, 5 h, 12 d; never negative."""
    if not math.isfinite(duration_s):
        return _UNKNOWN
    duration_s = max(0.0, duration_s)
    if duration_s < 1.5 * _MINUTE_S:
        return f"{duration_s:.0f} s"
    if duration_s < 1.5 * _HOUR_S:
        return f"{duration_s / _MINUTE_S:.0f} min"
    if duration_s < 1.5 * _DAY_S:
        return f"{duration_s / _HOUR_S:.0f} h"
    return f"{duration_s / _DAY_S:.0f} d"


def format_age(then_s: float | None, *, now_s: float) -> str:
    """How long ago something happened: "14 s ago", or "never" for None."""
    return "never" if then_s is None else f"{format_duration(now_s - then_s)} ago"


def format_loss(loss: float | None) -> str:
    """A loss in nats per byte, "-" if there is none, "NaN" or "inf" where training broke."""
    if loss is None:
        return _UNKNOWN
    if math.isnan(loss):
        return "NaN"
    if math.isinf(loss):
        return "inf"
    return f"{loss:.3f}" if loss < 100 else f"{loss:.3g}"


def sparkline(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """The last values as one row of bars, the highest of them full.

    Args:
        values: oldest first; those that are not finite show as "x".
        width: most characters.
        ascii_only: use punctuation for bars.
    """
    marks = _ASCII_SPARKS if ascii_only else _SPARKS
    shown = values[-width:] if width > 0 else ()
    finite = [value for value in shown if math.isfinite(value)]
    low = min(finite, default=0.0) / 2  # halves, so that no difference is infinite
    span = max(finite, default=0.0) / 2 - low
    bars: list[str] = []
    for value in shown:
        if not math.isfinite(value):
            bars.append(_NOT_A_NUMBER_MARK)
            continue
        height = (value / 2 - low) / span if span > 0 else 0.0
        bars.append(marks[min(len(marks) - 1, int(height * len(marks)))])
    return "".join(bars)


def progress_bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar of exactly so many characters, filled to a share between 0 and 1."""
    full, empty = "#." if ascii_only else "█░"
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    num_full = round(share * width)
    return full * num_full + empty * (width - num_full)


def format_share(share: float) -> str:
    """A part of a whole: 25%; small ones are not nothing: <1%."""
    if not math.isfinite(share):
        return _UNKNOWN
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A count with its noun: "1 peer", "3 peers"."""
    return f"{format_count(count)} {noun if count == 1 else nouns or f'{noun}s'}"


def _scaled(value: float, unit: str) -> str:
    """Three significant digits, a power of 1000 and a unit."""
    if not math.isfinite(value):
        return _UNKNOWN
    power = 0
    while abs(value) >= 999.5 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    digits = 0 if power == 0 or abs(value) >= 99.95 else 1
    return f"{value:.{digits}f} {_PREFIXES[power]}{unit}".rstrip()
