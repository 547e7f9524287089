"""The report of newcomers says what was measured; a node's words are read right."""

from __future__ import annotations

from pathlib import Path

from benchmarks.chain.config import Link
from benchmarks.newcomer.report import LinkTimes, NewcomerTimes, make_set_up, write_report
from bt_p2p.testing.clock import ManualClock
from node.download_meter import DownloadMeter


def times(first_average_s: float) -> NewcomerTimes:
    """Of one newcomer."""
    return NewcomerTimes(
        synced_s=9.0,
        first_average_s=first_average_s,
        download_s=1.5,
        size_bytes=3_412_992,
        num_donors=2,
        rounds_alone=0,
        load=3.0,
    )


def test_the_report_holds_medians_for_each_link(tmp_path: Path) -> None:
    """The row of a link, and a warning if it was bypassed."""
    links = [
        LinkTimes(link=Link(), newcomers=(times(40.0), times(30.0), times(95.0)), num_bypasses=0),
        LinkTimes(
            link=Link(one_way_ms=10, mbit_per_s=20), newcomers=(times(50.0),), num_bypasses=2
        ),
    ]
    write_report(tmp_path, make_set_up("the command"), links, num_donors=2, round_s=30.0)
    text = (tmp_path / "newcomer.md").read_text(encoding="utf-8")
    assert "| loopback | 3 | 9.0 | 1.50 | 2 | **40.0** | 30.0 | 95.0 | 3 |" in text
    assert "| 10 ms, 20 Mbit/s | 1 |" in text
    assert "3.4 MB of weights) train in rounds of 30 s" in text
    assert "2 connections did not go through the links" in text
    assert (tmp_path / "newcomer.json").exists()


def test_what_a_node_says_of_its_download_is_understood() -> None:
    """Donors and seconds."""
    from benchmarks.newcomer.words import download_words

    clock = ManualClock()
    meter = DownloadMeter(clock)
    meter.begin(size_bytes=3_000_000, kept_bytes=0, num_donors=2)
    meter.fetched_bytes = 3_000_000
    clock.advance(1.5)
    line = f"took round 7 of block 0 from …abc and …def ({meter.summary()})"
    assert (2, 1.5) == download_words(f"before\n{line}\nafter")
    assert download_words("nothing of the kind") is None
