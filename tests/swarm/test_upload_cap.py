"""One upload cap for averages and for what a holder answers, over real streams."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bt_p2p.averaging.averager import PartnerReport
from bt_p2p.averaging.schedule import average_timeout_s, matchmaking_s
from bt_p2p.chain.weights_offer import ChunkRequest
from bt_p2p.clock import SystemClock
from bt_p2p.testing.tiny import tiny_manifest, tiny_service
from tests.swarm.names import unique_name

pytestmark = [pytest.mark.swarm, pytest.mark.slow, pytest.mark.timeout(120)]

BYTES_PER_S = 2_000_000
SIZE = 300_000  # elements: 1.2 MB leave each of two members
TIMEOUT_S = 30.0


@pytest.fixture
def cap():
    """For all peers of this process, which share it as the processes of one node do."""
    from bt_p2p.swarm.upload import UploadCap, limit_upload

    found = UploadCap(SystemClock(), bytes_per_s=BYTES_PER_S)
    limit_upload(found)
    yield found
    limit_upload(None)


def test_averages_and_snapshots_together_stay_within_the_cap(local_peers, cap):
    """Two members average while one of them gives its weights to the other, chunk after chunk."""
    from bt_p2p.swarm.averager import HivemindAverager
    from bt_p2p.swarm.block_rpc import HivemindBlockClient, HivemindBlockServer

    manifest = tiny_manifest(unique_name(), round_s=4)
    giver, taker = (peer.swarm for peer in local_peers[:2])
    averagers = [
        HivemindAverager(swarm.dht, manifest, 0, {"flat": (SIZE,)}) for swarm in (giver, taker)
    ]
    server = HivemindBlockServer(giver.p2p, tiny_service(manifest, 0))
    giver.loop.run(server.start(), timeout_s=TIMEOUT_S)
    client = HivemindBlockClient(taker.p2p)
    is_over = threading.Event()

    async def download() -> int:
        [offer] = await client.weights_offers(
            giver.peer_id,
            run_id=manifest.run_id,
            block=0,
            max_size_bytes=2**30,
            timeout_s=TIMEOUT_S,
        )
        asked = ChunkRequest(run_id=manifest.run_id, block=0, offer=offer, index=0)
        total = 0
        while not is_over.is_set():
            total += len(await client.weights_chunk(giver.peer_id, asked, timeout_s=TIMEOUT_S))
        return total

    try:
        ends_at_s = time.time() + matchmaking_s(4) + 1.0
        pending = [
            each.begin(PartnerReport(round_index=1), ends_at_s=ends_at_s) for each in averagers
        ]
        weights = [{"flat": torch.full((SIZE,), float(index))} for index in range(2)]
        downloading = taker.loop.start(download())
        started_s, before_bytes = time.monotonic(), cap.sent_bytes

        def finish(index: int):
            return pending[index].finish(
                weights[index],
                start=weights[index],
                num_samples=1,
                timeout_s=average_timeout_s(8 * SIZE, 2, 4.0),
            )

        with ThreadPoolExecutor(2) as pool:
            averages = list(pool.map(finish, range(2)))
        took_s, sent_bytes = time.monotonic() - started_s, cap.sent_bytes - before_bytes
        is_over.set()
        given_bytes = downloading.result(TIMEOUT_S)
    finally:
        is_over.set()
        giver.loop.run(server.stop(), timeout_s=TIMEOUT_S)
        for each in averagers:
            each.stop()
    assert all(torch.all(average.weights["flat"] == 0.5) for average in averages)
    assert given_bytes
    assert 2 * 4 * SIZE < sent_bytes  # both members' weights were counted, and chunks besides
    assert 1.1 * BYTES_PER_S >= sent_bytes / took_s
