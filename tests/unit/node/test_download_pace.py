"""When weights of others are taken, and when a node that is too slow stops chasing them."""

from __future__ import annotations

import pytest

from bt_p2p.protocol.limits import MAX_ROUND_LAG
from node.download_pace import MAX_IN_A_ROW, DownloadPace, must_sync


@pytest.mark.parametrize(
    ("round_index", "newest", "is_newcomer", "expected"),
    [
        (0, None, True, False),
        (0, 0, True, False),
        (0, 1, True, True),
        (MAX_ROUND_LAG, MAX_ROUND_LAG + 1, True, True),
        (100, 101, True, False),  # a founder that was alone
        (0, 1, False, False),
        (10, 10 + MAX_ROUND_LAG, False, False),
        (10, 11 + MAX_ROUND_LAG, False, True),
        (10, 3, False, False),
    ],
)
def test_who_takes_the_weights_of_others(round_index, newest, is_newcomer, expected) -> None:
    """Newcomers whenever somebody is ahead, others when too many rounds behind."""
    assert expected == must_sync(round_index, newest, is_newcomer=is_newcomer)


def late(pace: DownloadPace, times: int, now_s: float = 0.0) -> None:
    """Downloads of 20 s that end far behind."""
    for _ in range(times):
        assert pace.may_download(now_s)
        pace.downloaded(took_s=20.0, lag=7, now_s=now_s)


def test_a_lag_of_a_few_rounds_is_no_problem() -> None:
    """However often."""
    pace = DownloadPace(3.0)
    for _ in range(5):
        pace.downloaded(took_s=9.0, lag=MAX_ROUND_LAG, now_s=0.0)
    assert (True, "") == (pace.may_download(0.0), pace.problem)


def test_downloads_that_end_behind_are_made_in_a_row_only_so_often() -> None:
    """And the user is told why."""
    pace = DownloadPace(3.0)
    late(pace, MAX_IN_A_ROW)
    assert [False, True] == [pace.may_download(99.0), pace.may_download(100.0)]
    assert pace.problem.startswith(
        "round shorter than your download: 3 s < 20 s; 7 rounds behind, so it trains alone and "
        "tries again in 2 min"
    )


def test_pauses_get_longer_up_to_an_hour_and_end_with_a_good_download() -> None:
    """A link may get better."""
    pace = DownloadPace(3.0)
    late(pace, MAX_IN_A_ROW)
    late(pace, 1, now_s=100.0)
    assert [False, True] == [pace.may_download(299.0), pace.may_download(300.0)]
    now_s = 300.0
    for _ in range(9):
        late(pace, 1, now_s=now_s)
        now_s += 3600.0
    assert pace.may_download(now_s)
    pace.downloaded(took_s=5.0, lag=2, now_s=now_s)
    assert (True, "") == (pace.may_download(now_s), pace.problem)
    late(pace, MAX_IN_A_ROW, now_s=now_s)
    assert pace.may_download(now_s + 101.0)
