"""Copies of earlier blocks arrive while training goes on, and their absence stops nothing."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable

import pytest
import torch

from bt_p2p.chain.service import LocalBlockService
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import (
    TINY_OBJECTIVE,
    tiny_identity,
    tiny_lease,
    tiny_manifest,
    tiny_overview,
    tiny_weights,
)
from node.copies import BlockCopies, old_copies

CASCADE = {"name": "cascade", "upstream_refresh_rounds": 3}
MANIFEST = tiny_manifest().model_copy(
    update={"objective": TINY_OBJECTIVE.model_copy(update=CASCADE)}
)


class Later:
    """Runs downloads when told to."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self.num_started = 0

    def __call__(self, coroutine):
        future: concurrent.futures.Future = concurrent.futures.Future()
        self.num_started += 1

        def run() -> None:
            try:
                future.set_result(asyncio.run(coroutine))
            except Exception as exc:  # noqa: BLE001 - as the loop's future would
                future.set_exception(exc)

        self._waiting.append(run)
        return future

    def run_all(self) -> None:
        for run in self._waiting:
            run()
        self._waiting.clear()


class Swarm:
    """Holders of blocks in memory, and a refresher for the last block of three."""

    def __init__(self, manifest: RunManifest = MANIFEST, blocks=(0, 1)) -> None:
        self.manifest = manifest
        self.services: dict[str, LocalBlockService] = {}
        self.leases: dict[int, object] = {}
        self.later = Later()
        self.adopted: list[tuple[int, float]] = []
        self.copies = BlockCopies(
            manifest,
            blocks,
            self.adopt,
            InMemoryBlockClient(self.services),
            self.later,
            peer_id=tiny_identity(9).peer_id,
            refresh_rounds=3,
        )

    @property
    def rounds(self) -> list[int | None]:
        return list(self.copies.rounds.values())

    def adopt(self, block, weights, round_index) -> None:
        """Keep the block and the value that all its weights have."""
        assert round_index >= 0
        [value] = {float(tensor.flatten()[0]) for tensor in weights.values()}
        self.adopted.append((block, value))

    def hold(self, block: int, round_index: int, value: float) -> None:
        """A peer serves a block, all weights equal to `value`."""
        identity = tiny_identity(block)
        service = LocalBlockService(self.manifest, block)
        weights = {
            name: torch.full_like(tensor, value)
            for name, tensor in tiny_weights(self.manifest, block).items()
        }
        service.adopt(weights, round_index)
        self.services[identity.peer_id] = service
        self.leases[block] = tiny_lease(
            self.manifest, identity, block=block, round_index=round_index
        )

    def between_rounds(self) -> list[int]:
        overview = tiny_overview(self.manifest, list(self.leases.values()))
        return self.copies.between_rounds(overview)


def test_copies_arrive_between_rounds_and_follow_the_swarm():
    """Nothing before the download ends; then the copies; fetched again when three rounds old."""
    swarm = Swarm()
    swarm.hold(0, 5, 0.5)
    swarm.hold(1, 6, 0.25)
    swarm.between_rounds()
    swarm.between_rounds()  # still on their way: not asked for twice
    assert (2, [None, None]) == (swarm.later.num_started, swarm.rounds)
    swarm.later.run_all()
    assert [0, 1] == swarm.between_rounds()
    assert [5, 6] == swarm.rounds
    swarm.hold(0, 7, 0.125)
    swarm.between_rounds()
    assert 2 == swarm.later.num_started
    swarm.hold(0, 8, 0.125)
    swarm.between_rounds()
    swarm.later.run_all()
    assert [] == swarm.between_rounds()
    assert (3, [8, 6], "") == (swarm.later.num_started, swarm.rounds, swarm.copies.problem)


def test_a_block_without_holders_stays_missing_and_the_others_arrive():
    """Nothing stops because another block is empty."""
    swarm = Swarm()
    swarm.hold(1, 4, 0.5)
    swarm.between_rounds()
    swarm.later.run_all()
    swarm.between_rounds()
    assert [None, 4] == swarm.rounds


def test_a_holder_that_went_away_is_a_warning_and_is_tried_again():
    """The lease is there, the peer is not; then it is back."""
    swarm = Swarm()
    swarm.hold(0, 4, 0.5)
    service = swarm.services.pop(tiny_identity(0).peer_id)
    swarm.between_rounds()
    swarm.later.run_all()
    swarm.between_rounds()
    assert [None, None] == swarm.rounds
    assert "no fresh copy of block 0" in swarm.copies.problem
    swarm.services[tiny_identity(0).peer_id] = service
    swarm.later.run_all()
    swarm.between_rounds()
    assert ([4, None], "") == (swarm.rounds, swarm.copies.problem)


def test_without_blocks_nothing_is_copied():
    """Most nodes need no copies."""
    swarm = Swarm(blocks=())
    swarm.hold(0, 5, 0.5)
    assert [] == swarm.between_rounds() == swarm.rounds
    assert 0 == swarm.later.num_started


def test_stop_gives_up_downloads():
    """Their futures are cancelled."""
    swarm = Swarm()
    swarm.hold(0, 4, 0.5)
    seen = []
    start = swarm.copies._start
    swarm.copies._start = lambda coroutine: seen.append(start(coroutine)) or seen[-1]
    swarm.between_rounds()
    swarm.copies.stop()
    assert [True] == [future.cancelled() for future in seen]
    for run in swarm.later._waiting:
        with pytest.raises(concurrent.futures.InvalidStateError):
            run()


@pytest.mark.parametrize(
    ("copied", "expected"), [(None, [0]), (4, [0]), (5, []), (7, []), (9, [])], ids=str
)
def test_old_is_missing_or_enough_rounds_behind(copied, expected):
    """The swarm is at round 7; three rounds behind is old, ahead is not."""
    leases = [tiny_lease(MANIFEST, tiny_identity(0), block=0, round_index=7)]
    overview = tiny_overview(MANIFEST, leases)
    assert expected == old_copies({0: copied, 1: None}, overview, refresh_rounds=3)
