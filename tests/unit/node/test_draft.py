"""A block at home guesses; without one, the text itself does."""

from __future__ import annotations

import asyncio

import pytest

from bt_p2p.chain.drafter import BlockDrafter, RepeatDrafter
from bt_p2p.chain.sampling import Sampling
from bt_p2p.model.block import initial_block
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.tiny import (
    tiny_identity,
    tiny_lease,
    tiny_manifest,
    tiny_overview,
    tiny_service,
)
from node.draft import DraftBlock, best_draft_block

MANIFEST = tiny_manifest()


def lease(manifest, index, *, block, loss, state="training"):
    return tiny_lease(manifest, tiny_identity(index), block).model_copy(
        update={"loss": loss, "state": state}
    )


@pytest.mark.parametrize(
    ("objective", "expected"), [("plain", 2), ("diffusion", 2), ("cascade", 0)]
)
def test_the_block_that_predicts_best_alone_is_chosen(objective, expected):
    """The lowest loss; of a cascade always the first, which needs no other."""
    manifest = tiny_manifest(objective=objective)
    leases = [lease(manifest, i, block=i, loss=loss) for i, loss in enumerate([2.0, None, 1.5])]
    assert [expected] == [each.block for each in best_draft_block(tiny_overview(manifest, leases))]


def test_nobody_who_trains_means_no_block():
    """An empty swarm."""
    assert [] == best_draft_block(tiny_overview(MANIFEST, []))


def test_a_block_is_fetched_once_and_again_when_old():
    """It guesses as the holder's own block would."""
    peer_id = tiny_identity(0).peer_id
    client = InMemoryBlockClient({peer_id: tiny_service(MANIFEST, 1, round_index=4)})
    clock, num_looks = ManualClock(), 0

    def look_up():
        nonlocal num_looks
        num_looks += 1
        return tiny_overview(MANIFEST, [lease(MANIFEST, 0, block=1, loss=1.0)])

    draft_block = DraftBlock(MANIFEST, client, look_up, clock)
    first, second = asyncio.run(draft_block.drafter()), asyncio.run(draft_block.drafter())
    local = BlockDrafter(initial_block(MANIFEST, 1))
    guess = local.draft(b"the ", 5, Sampling(), 1)
    assert 5 == len(guess)
    assert (
        guess == first.draft(b"the ", 5, Sampling(), 1) == second.draft(b"the ", 5, Sampling(), 1)
    )
    assert first is not second  # each text has its own cache
    assert (1, "block 1 at round 4") == (num_looks, draft_block.source.split(",")[0])
    clock.advance(121)
    asyncio.run(draft_block.drafter())
    assert 2 == num_looks


def test_without_a_block_the_text_is_repeated_and_a_block_is_tried_again():
    """A holder that is gone is no reason to fail."""
    clients = {}
    draft_block = DraftBlock(
        MANIFEST,
        InMemoryBlockClient(clients),
        lambda: tiny_overview(MANIFEST, [lease(MANIFEST, 0, block=1, loss=1.0)]),
        ManualClock(),
    )
    assert isinstance(asyncio.run(draft_block.drafter()), RepeatDrafter)
    assert "the text itself" == draft_block.source
    clients[tiny_identity(0).peer_id] = tiny_service(MANIFEST, 1)
    assert isinstance(asyncio.run(draft_block.drafter()), BlockDrafter)
