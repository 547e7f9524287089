"""What the user reads while weights are fetched."""

from __future__ import annotations

from bt_p2p.testing.clock import ManualClock
from node.download_meter import DownloadMeter


def test_words_follow_the_download() -> None:
    """Asked, waiting, begun with what was kept, half way, done."""
    clock = ManualClock()
    meter = DownloadMeter(clock)
    assert "asking replicas for their weights" == meter.words()
    meter.waits_for = "all are busy"
    assert "waiting: all are busy" == meter.words()
    meter.begin(size_bytes=4_000_000, kept_bytes=1_000_000, num_donors=2)
    assert "1.0 MB of 4.0 MB at 0 B/s from 2 replicas, - left" == meter.words()
    clock.advance(2.0)
    meter.fetched_bytes += 1_000_000
    assert "2.0 MB of 4.0 MB at 500 kB/s from 2 replicas, 4 s left" == meter.words()
    clock.advance(2.0)
    meter.fetched_bytes += 2_000_000
    assert "3.0 MB in 4.0 s, 750 kB/s, 1.0 MB kept from before" == meter.summary()
