"""A newcomer takes one snapshot, from all replicas that have it, whole and valid, or says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from bt_p2p.chain.service import LocalBlockService
from bt_p2p.chain.weights_offer import WeightsOffer, make_offer
from bt_p2p.errors import BusyError, SwarmError, WireFormatError
from bt_p2p.model.wire import TensorSpec, encode_tensors
from bt_p2p.protocol.lease import Lease
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest, tiny_overview
from node.download_meter import DownloadMeter
from node.partial_download import PartialFiles
from node.sync import DownloadOptions, SyncedWeights, donors, fetch_weights, snapshots_to_try

MANIFEST = tiny_manifest()
ME = tiny_identity(0)
SPECS: dict[str, TensorSpec] = {"w": ((500, 1000), torch.float32)}
"""Two megabytes: eight chunks."""
NUM_CHUNKS = 8


def peer(index: int) -> str:
    """The id of a donor."""
    return tiny_identity(index).peer_id


def lease_of(index: int, round_index: int, state: str = "training") -> Lease:
    """What a donor announces."""
    lease = tiny_lease(MANIFEST, tiny_identity(index), round_index=round_index)
    return lease.model_copy(update={"state": state})


class Donor:
    """A holder of weights that all have one value, of as many rounds as are given."""

    def __init__(self, rounds: Mapping[int, float], *, delay_s: float = 0.0) -> None:
        self.offers: list[WeightsOffer] = []
        self.data: dict[bytes, bytes] = {}
        self.delay_s = delay_s
        self.refuses: Exception | None = None
        self.spoils: set[int] = set()
        self.num_given = 0
        self.gone_after: int | None = None
        for round_index in sorted(rounds, reverse=True):
            self.add(round_index, {"w": torch.full((500, 1000), rounds[round_index])})

    def add(self, round_index: int, tensors) -> None:
        """Offer these."""
        data = encode_tensors(tensors)
        offer = make_offer(data, round_index)
        self.offers.append(offer)
        self.data[offer.offer_id] = data

    async def weights_offers(self, run_id, block, *, asker):
        if self.refuses is not None:
            raise self.refuses
        return tuple(self.offers)

    async def weights_chunk(self, run_id, block, offer_id, index, *, asker):
        await asyncio.sleep(self.delay_s)
        if self.gone_after is not None and self.num_given >= self.gone_after:
            raise WireFormatError("that snapshot of the weights is no longer kept")
        self.num_given += 1
        offer = next(each for each in self.offers if each.offer_id == offer_id)
        data = self.data[offer_id][offer.chunk_slice(index)]
        return b"?" * len(data) if index in self.spoils else data


class Swarm:
    """Donors by index, and a newcomer."""

    def __init__(self, donors_by_index: Mapping[int, Donor]) -> None:
        self.donors = donors_by_index
        self.client = InMemoryBlockClient({peer(i): each for i, each in donors_by_index.items()})
        self.meter: DownloadMeter | None = None

    def fetch(self, *, min_round_index: int = 1, **options) -> SyncedWeights:
        """Ask all donors."""
        candidates = [
            lease_of(index, max((o.round_index for o in donor.offers), default=1))
            for index, donor in self.donors.items()
        ]

        async def bounded() -> SyncedWeights:
            async with asyncio.timeout(20):
                return await fetch_weights(
                    self.client,
                    candidates,
                    expected=SPECS,
                    min_round_index=min_round_index,
                    options=DownloadOptions(**options),
                )

        return asyncio.run(bounded())

    def asked(self, index: int) -> int:
        """Chunks asked of a donor so far."""
        return sum(who == peer(index) for who, _ in self.client.chunk_calls)


def value_of(synced: SyncedWeights) -> float:
    """Which all weights have."""
    [value] = set(synced.weights["w"].flatten().tolist())
    return value


def test_donors_are_other_replicas_ahead_newest_first() -> None:
    """Oneself, those behind, and those still joining are no donors."""
    leases = [
        tiny_lease(MANIFEST, ME, round_index=9),
        lease_of(1, 5),
        lease_of(2, 7),
        lease_of(3, 2),
        lease_of(4, 8, state="joining"),
    ]
    overview = tiny_overview(MANIFEST, leases)
    found = donors(overview, block=0, peer_id=ME.peer_id, round_index=2)
    assert [7, 5] == [lease.round_index for lease in found]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ({"a": [5], "b": [5], "c": [6]}, [(5, "ab"), (6, "c")]),
        ({"a": [6, 5], "b": [5], "c": [6]}, [(6, "ac"), (5, "ab")]),
        ({"a": [7], "b": [5], "c": [5]}, [(7, "a"), (5, "bc")]),
        ({"a": [3], "b": [1, 0]}, [(3, "a"), (1, "b")]),
        ({"a": [0]}, []),
        ({}, []),
    ],
    ids=str,
)
def test_the_snapshot_that_most_donors_have_comes_first_unless_it_is_old(rounds, expected) -> None:
    """One round behind the newest is not old, two are."""
    offers = {who: [make_offer(b"same", r) for r in theirs] for who, theirs in rounds.items()}
    found = snapshots_to_try(offers, min_round_index=1)
    assert expected == [(s.offer.round_index, "".join(s.peer_ids)) for s in found]


def test_a_real_holder_gives_what_it_serves() -> None:
    """Its tensors, round and name."""
    service = LocalBlockService(MANIFEST, 0)
    weights = {name: torch.full_like(t, 0.5) for name, t in service.served_weights().items()}
    service.adopt(weights, 3)
    synced = asyncio.run(
        fetch_weights(
            InMemoryBlockClient({peer(1): service}),
            [lease_of(1, 3)],
            expected={name: (tuple(t.shape), t.dtype) for name, t in weights.items()},
            min_round_index=1,
        )
    )
    assert (3, (peer(1),), ()) == (synced.round_index, synced.peer_ids, synced.left)
    assert all(torch.equal(weights[name], tensor) for name, tensor in synced.weights.items())


def test_all_donors_of_a_snapshot_give_chunks_of_it() -> None:
    """Each once, and progress ends at the size."""
    swarm = Swarm({1: Donor({3: 0.5}, delay_s=0.01), 2: Donor({3: 0.5}, delay_s=0.01)})
    meter = DownloadMeter(ManualMonotonic())
    synced = swarm.fetch(meter=meter)
    assert (0.5, {peer(1), peer(2)}) == (value_of(synced), set(synced.peer_ids))
    assert sorted(range(NUM_CHUNKS)) == sorted(index for _, index in swarm.client.chunk_calls)
    assert meter.done_bytes == meter.size_bytes == swarm.donors[1].offers[0].size_bytes


class ManualMonotonic:
    """A clock that goes on by a second at each look."""

    def __init__(self) -> None:
        self._s = 0.0

    def now_s(self) -> float:
        return self._s

    def monotonic_s(self) -> float:
        self._s += 1.0
        return self._s


def test_a_donor_that_goes_away_in_the_middle_is_replaced_by_another() -> None:
    """Nothing that it gave is fetched again, and it is named."""
    swarm = Swarm({1: Donor({3: 0.5}, delay_s=0.01), 2: Donor({3: 0.5}, delay_s=0.01)})
    swarm.donors[1].gone_after = 2
    synced = swarm.fetch()
    assert (0.5, NUM_CHUNKS - 2) == (value_of(synced), swarm.donors[2].num_given)
    [reason] = synced.left
    assert reason.startswith(f"…{peer(1)[-6:]}: ")
    assert "no longer kept" in reason


@pytest.mark.parametrize("fault", ["not_finite", "wrong_shape", "drop"])
def test_a_donor_that_lies_or_breaks_in_one_chunk_is_named_and_left(fault) -> None:
    """The weights are those of the honest one."""
    swarm = Swarm({1: Donor({3: 0.5}, delay_s=0.01), 2: Donor({3: 0.5}, delay_s=0.01)})
    swarm.client.faults.once(peer(1), fault)
    synced = swarm.fetch()
    assert (0.5, peer(2)) == (value_of(synced), synced.peer_ids[0])
    assert 2 == swarm.asked(1)  # both at once, and nothing more after that
    assert f"…{peer(1)[-6:]}" in synced.left[0]


@pytest.mark.slow
def test_a_frozen_donor_holds_nothing_up() -> None:
    """Its chunks are asked of another one."""
    swarm = Swarm({1: Donor({3: 0.5}, delay_s=3600.0), 2: Donor({3: 0.5})})
    synced = swarm.fetch()
    assert (0.5, (peer(2),)) == (value_of(synced), synced.peer_ids)


def test_snapshots_are_never_mixed() -> None:
    """The newest one has lost its only donor in the middle; all is taken of the other one."""
    swarm = Swarm({1: Donor({5: 0.5}), 2: Donor({3: 0.25})})
    swarm.donors[1].gone_after = NUM_CHUNKS - 1
    synced = swarm.fetch()
    assert (3, 0.25, (peer(2),)) == (synced.round_index, value_of(synced), synced.peer_ids)


def test_a_donor_that_has_lost_one_snapshot_gives_another() -> None:
    """It did not lie."""
    donor = Donor({5: 0.5, 2: 0.25})
    lost = donor.offers[0].offer_id
    original = donor.weights_chunk

    async def weights_chunk(run_id, block, offer_id, index, *, asker):
        if offer_id == lost:
            raise WireFormatError("no longer kept")
        return await original(run_id, block, offer_id, index, asker=asker)

    donor.weights_chunk = weights_chunk
    assert 0.25 == value_of(Swarm({1: donor}).fetch())


@pytest.mark.parametrize(
    "tensors",
    [
        {"w": torch.full((500, 1000), torch.nan)},
        {"w": torch.ones(1000, 500)},
        {"x": torch.ones(500, 1000)},
    ],
    ids=["nan", "shape", "name"],
)
def test_a_snapshot_that_is_not_this_block_is_refused_with_its_donors(tensors) -> None:
    """However well its chunks match their hashes."""
    bad = Donor({})
    bad.add(4, tensors)
    swarm = Swarm({1: bad, 2: Donor({3: 0.5})})
    synced = swarm.fetch()
    assert (0.5, (peer(2),)) == (value_of(synced), synced.peer_ids)
    assert f"…{peer(1)[-6:]}" in synced.left[0]


def test_without_a_good_replica_each_is_named_with_its_reason() -> None:
    """Too old, unreachable, over the size, not finite."""
    nan, large = Donor({}), Donor({})
    nan.add(4, {"w": torch.full((500, 1000), torch.nan)})
    large.add(4, {"w": torch.ones(500, 1001)})
    swarm = Swarm({1: nan, 2: Donor({0: 0.5}), 3: large, 4: Donor({4: 0.5})})
    del swarm.client.services[peer(4)]
    with pytest.raises(SwarmError) as caught:
        swarm.fetch()
    for words in ("not finite", "serves only round 0", "are over the", "cannot be reached"):
        assert words in str(caught.value)


def test_a_restart_goes_on_with_the_chunks_that_are_there(tmp_path: Path) -> None:
    """Only the others are fetched; the file is gone when all is done."""
    swarm = Swarm({1: Donor({3: 0.5})})
    swarm.donors[1].gone_after = 5
    with pytest.raises(SwarmError):
        swarm.fetch(partial=PartialFiles(tmp_path, 0))
    assert 1 == len(list(tmp_path.iterdir()))
    swarm.donors[1].gone_after = None
    swarm.client.chunk_calls.clear()
    meter = DownloadMeter(ManualMonotonic())

    synced = swarm.fetch(partial=PartialFiles(tmp_path, 0), meter=meter)

    assert (0.5, NUM_CHUNKS - 5) == (value_of(synced), swarm.asked(1))
    assert meter.kept_bytes > 0 == len(list(tmp_path.iterdir()))


def test_a_kept_download_goes_on_even_if_there_is_a_newer_one(tmp_path: Path) -> None:
    """As long as it is not too old to be averaged."""
    donor = Donor({3: 0.5})
    donor.gone_after = 6
    with pytest.raises(SwarmError):
        Swarm({1: donor}).fetch(partial=PartialFiles(tmp_path, 0))
    for newest, expected in ((6, 3), (7, 7)):
        again = Swarm({1: Donor({3: 0.5, newest: 0.25})})
        PartialFiles(tmp_path, 0).open(donor.offers[0], bytearray(donor.offers[0].size_bytes))
        assert expected == again.fetch(partial=PartialFiles(tmp_path, 0)).round_index


def test_busy_donors_are_waited_for_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once one has room, it gives."""
    monkeypatch.setattr("node.sync._BUSY_RETRY_S", 0.01)
    swarm = Swarm({1: Donor({3: 0.5})})
    swarm.donors[1].refuses = BusyError("busy: 4 peers download")
    with pytest.raises(SwarmError, match="busy: 4 peers download"):
        swarm.fetch()

    class Healing(DownloadMeter):
        """Lets the donor have room as soon as somebody reads why nothing comes."""

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "waits_for" and value:
                seen.append(value)
                swarm.donors[1].refuses = None

    seen: list[str] = []
    meter = Healing(ManualMonotonic())
    assert 0.5 == value_of(swarm.fetch(meter=meter, patience_s=60.0))
    assert f"busy (…{peer(1)[-6:]}: " in seen[0]
