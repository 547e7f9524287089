"""A newcomer gets a block whole from real holders, whichever of them is killed or frozen meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from bt_p2p.model.block import initial_block, weight_specs
from bt_p2p.protocol.manifest import ModelSpec, RunManifest
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from node.partial_download import PartialFiles
from node.sync import DownloadOptions, SyncedWeights, fetch_weights

pytestmark = pytest.mark.swarm

TIMEOUT_S = 40.0
MANIFEST = tiny_manifest().model_copy(
    update={"model": ModelSpec(d_model=128, num_blocks=2, layers_per_block=4)}
)
"""Three and a half megabytes a block: fourteen chunks."""


class Watched:
    """A client that counts the chunks it is asked for, and does something before one of them."""

    def __init__(self, client, do: Callable[[], object], *, peer_id: str, before_chunk: int):
        self._client = client
        self._do = do
        self._peer_id = peer_id
        self._before_chunk = before_chunk
        self.asked: list[tuple[str, int]] = []
        self.weights_offers = client.weights_offers

    async def weights_chunk(self, peer_id, request, *, timeout_s):
        self.asked.append((peer_id, request.index))
        if peer_id == self._peer_id and self.num_asked(peer_id) == self._before_chunk:
            self._do()
        return await self._client.weights_chunk(peer_id, request, timeout_s=timeout_s)

    def num_asked(self, peer_id: str) -> int:
        return sum(who == peer_id for who, _ in self.asked)


class Newcomer:
    """A peer in this process, and holders in others."""

    def __init__(self, peer, holders) -> None:
        from bt_p2p.swarm.block_rpc import HivemindBlockClient

        self.peer = peer
        self.holders = holders
        self.client = HivemindBlockClient(peer.p2p)

    def fetch(self, client, **options) -> SyncedWeights:
        """Ask all holders."""
        candidates = [
            tiny_lease(MANIFEST, tiny_identity(0), 1, now_s=START_S, round_index=5).model_copy(
                update={"peer_id": holder.peer_id}
            )
            for holder in self.holders
        ]
        return self.peer.loop.run(
            fetch_weights(
                client,
                candidates,
                expected=weight_specs(MANIFEST),
                min_round_index=1,
                options=DownloadOptions(**options),
            ),
            timeout_s=TIMEOUT_S,
        )


@pytest.fixture
def newcomer(processes) -> Iterator[Newcomer]:
    """Two holders of the same weights, and one that is to fetch them."""
    from bt_p2p.protocol.address import parse_peer_addresses
    from bt_p2p.swarm.process import PeerOptions, start_peer

    holders = [processes(), processes()]
    for holder in holders:
        holder.ask("serve", manifest=MANIFEST.model_dump(), block=1, round_index=5)
    peer = start_peer(
        PeerOptions(initial_peers=tuple(parse_peer_addresses(holders[0].addresses)), is_client=True)
    )
    yield Newcomer(peer, holders)
    peer.stop()


def is_block(synced: SyncedWeights, manifest: RunManifest = MANIFEST) -> bool:
    """Whether these are the weights that the holders serve, bit for bit."""
    expected = initial_block(manifest, 1).weights()
    return all(torch.equal(expected[name], found) for name, found in synced.weights.items())


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_holder_lost_in_the_middle_is_replaced_by_another(newcomer: Newcomer, fault: str) -> None:
    """`kill -9`, or a laptop that sleeps: the download ends, with the weights of that round."""
    first, second = newcomer.holders
    hurt = {"killed": lambda: first.signal_main(signal.SIGKILL), "frozen": first.freeze}[fault]
    client = Watched(newcomer.client, hurt, peer_id=first.peer_id, before_chunk=3)

    synced = newcomer.fetch(client)

    assert (5, True, second.peer_id) == (synced.round_index, is_block(synced), synced.peer_ids[0])
    assert 3 <= client.num_asked(first.peer_id) <= 4


def test_a_download_that_was_broken_off_goes_on_with_the_rest(
    newcomer: Newcomer, tmp_path: Path
) -> None:
    """What is on the disk is not fetched again."""
    broken = RuntimeError("the node is killed here")

    def end() -> None:
        raise broken

    first = newcomer.holders[0]
    client = Watched(newcomer.client, end, peer_id=first.peer_id, before_chunk=5)
    with pytest.raises(RuntimeError, match="killed here"):
        newcomer.fetch(client, partial=PartialFiles(tmp_path, 1))
    before = {index for _, index in client.asked}
    [kept] = tmp_path.iterdir()
    assert kept.stat().st_size > 0

    again = Watched(newcomer.client, end, peer_id="", before_chunk=-1)
    synced = newcomer.fetch(again, partial=PartialFiles(tmp_path, 1))

    assert is_block(synced)
    asked = [index for _, index in again.asked]
    assert len(asked) < 14 <= len(before | set(asked))
    assert [] == list(tmp_path.iterdir())
