"""Numbers and strangers' strings as short text."""

from __future__ import annotations

import math

import pytest

from node.tui.format import (
    format_age,
    format_bytes,
    format_count,
    format_duration,
    format_loss,
    format_peer,
    format_rate,
    format_share,
    plain,
    plural,
    progress_bar,
    sparkline,
)


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.0 kB"),
        (1_000, "1.0 kB"),
        (31_400_000, "31.4 MB"),
        (640_000, "640 kB"),
        (99_960, "100 kB"),
        (999_600, "1.0 MB"),
        (2.5e12, "2.5 TB"),
        (3e24, "3000000 EB"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_bytes_have_three_digits_and_a_prefix(size_bytes, expected):
    """Sizes use powers of 1000, and never show four digits below the last prefix."""
    assert expected == format_bytes(size_bytes)


def test_rate_is_bytes_per_second():
    """Speeds look like sizes."""
    assert "3.2 kB/s" == format_rate(3200)


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [
        (-5, "0 s"),
        (0.4, "0 s"),
        (45, "45 s"),
        (89, "89 s"),
        (91, "2 min"),
        (240, "4 min"),
        (7200, "2 h"),
        (3 * 86400, "3 d"),
        (math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_duration_has_one_unit(duration_s, expected):
    """Durations are whole numbers of one unit, and never negative."""
    assert expected == format_duration(duration_s)


def test_age_counts_from_then():
    """An age says how long ago; without a time, never."""
    assert ["14 s ago", "never"] == [format_age(then_s, now_s=100.0) for then_s in (86.0, None)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0"), (12_400, "12,400"), (99_999, "99,999"), (100_000, "100 k"), (3_141_593, "3.1 M")],
)
def test_count_is_short(count, expected):
    """Small counts are exact, large ones rounded."""
    assert expected == format_count(count)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (None, "-"),
        (2.10449, "2.104"),
        (0.0, "0.000"),
        (1e6, "1e+06"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
    ],
)
def test_loss_tells_broken_from_missing(loss, expected):
    """No loss is "-", a broken one "NaN" or "inf"."""
    assert expected == format_loss(loss)


def test_plural_follows_the_count():
    """One thing is singular, any other count plural."""
    assert ["0 peers", "1 peer", "2 peers", "2 mice"] == [
        plural(0, "peer"),
        plural(1, "peer"),
        plural(2, "peer"),
        plural(2, "mouse", "mice"),
    ]


def test_sparkline_spans_low_to_high():
    """The lowest value has the smallest bar, the highest the full one."""
    assert ("█▅▁", "#=_") == (
        sparkline([3.0, 2.0, 1.0], 8),
        sparkline([3.0, 2.0, 1.0], 8, ascii_only=True),
    )


def test_sparkline_keeps_the_newest_values():
    """Only the last values are shown if room is short."""
    assert "▁█" == sparkline([9.0, 1.0, 2.0], 2)


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 8, ""),
        ([1.0], 0, ""),
        ([2.0, 2.0], 8, "▁▁"),
        ([1.0, math.nan, 2.0, math.inf], 8, "▁x█x"),
        ([math.nan], 8, "x"),
    ],
)
def test_sparkline_survives_odd_values(values, width, expected):
    """No values, no room, equal values and broken ones are all drawn."""
    assert expected == sparkline(values, width)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("two\r\nlines\tand a tab", "two  lines and a tab"),
        ("\x9b31mC1", "31mC1"),
        ("right\u202eleft\u200b", "rightleft"),
        ("line\u2028separator", "line separator"),
        ("lone \udcff surrogate", "lone ? surrogate"),
        ("[bold]markup[/] :smile:", "[bold]markup[/] :smile:"),
        ("caf\u00e9 \u4e16\u754c", "caf\u00e9 \u4e16\u754c"),
    ],
)
def test_plain_text_has_no_control_characters(text, expected):
    """What moves the cursor, hides or reorders text is gone; the visible rest stays."""
    assert expected == plain(text)


def test_plain_text_can_be_ascii():
    """Close characters are replaced by their like, others by a question mark."""
    text = "dropped: … \u201ccaf\u00e9\u201d \u2013 \u4e16\u754c"
    assert 'dropped: ... "caf?" - ??' == plain(text, ascii_only=True)


def test_peer_is_its_last_six_characters():
    """Peers are short, in ASCII too."""
    peer_id = "12D3KooWabcdef"
    assert ("…abcdef", "...abcdef") == (format_peer(peer_id), format_peer(peer_id, ascii_only=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u200bb\u200d\ufeffc", "abc"),
        ("\u2066evil\u2069\u202e", "evil"),
        ("x\u3164\u2800\u115f\ufe0f\u034fy", "xy"),
        ("e" + "\u0301" * 40 + "!", "e\u0301\u0301!"),
        ("\u0301a", "a"),
        ("\x9b2J\x1b]8;;http://x\x07link", "2J]8;;http://xlink"),
        ("\u05d0\u0628", "\u05d0\u0628"),
    ],
)
def test_what_shows_as_nothing_or_piles_up_is_removed(text, expected):
    """Invisible characters hide or move nothing; letters of any script stay."""
    assert expected == plain(text)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, "...."), (0.5, "##.."), (1, "####"), (-3, "...."), (9, "####"), (math.nan, "....")],
)
def test_bar_is_always_as_wide_as_asked(share, expected):
    """Shares beyond the ends fill or empty it."""
    assert expected == progress_bar(share, 4, ascii_only=True)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, "0%"), (0.004, "<1%"), (0.25, "25%"), (1, "100%"), (math.inf, "-")],
)
def test_share_is_a_percentage(share, expected):
    """A small share is not nothing."""
    assert expected == format_share(share)
