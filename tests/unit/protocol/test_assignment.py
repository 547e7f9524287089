"""bt_p2p.protocol.assignment: newcomers spread without a coordinator."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.assignment import check_block, check_span, choose_block, parse_span
from bt_p2p.protocol.lease import Lease
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest, tiny_overview

NUM_BLOCKS = 4
MANIFEST = tiny_manifest(num_blocks=NUM_BLOCKS)
PEERS = [tiny_identity(index) for index in range(24)]


def leases_of(counts: list[int], first: int = 0) -> list[Lease]:
    """So many holders of each block."""
    blocks = [block for block, count in enumerate(counts) for _ in range(count)]
    return [tiny_lease(MANIFEST, PEERS[first + index], block) for index, block in enumerate(blocks)]


def joining(indices: list[int]) -> list[Lease]:
    """These peers are choosing right now."""
    return [tiny_lease(MANIFEST, PEERS[index], None) for index in indices]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([0, 0, 0, 0], 0), ([1, 0, 1, 0], 1), ([2, 2, 1, 2], 2), ([3, 3, 3, 2], 3), ([1, 1, 1, 1], 0)],
)
def test_a_newcomer_takes_the_thinnest_block(counts: list[int], expected: int) -> None:
    """The first of the blocks with the fewest holders."""
    overview = tiny_overview(MANIFEST, leases_of(counts))
    assert expected == choose_block(overview, PEERS[-1].peer_id)


@pytest.mark.parametrize("num_joiners", range(1, 10))
def test_simultaneous_joiners_spread(num_joiners: int) -> None:
    """With one view and no word between them, blocks differ by one holder at most."""
    overview = tiny_overview(MANIFEST, joining(list(range(num_joiners))))
    chosen = [choose_block(overview, PEERS[index].peer_id) for index in range(num_joiners)]
    counts = [chosen.count(block) for block in range(NUM_BLOCKS)]
    assert max(counts) - min(counts) <= 1


def test_a_peer_counts_as_joining_before_its_lease_is_seen() -> None:
    """Its own record may not have come back yet; the choice is the same."""
    with_me = tiny_overview(MANIFEST, joining([0, 1, 2]))
    without_me = tiny_overview(MANIFEST, joining([0, 2]))
    me = PEERS[1].peer_id
    assert choose_block(with_me, me) == choose_block(without_me, me)


def test_ones_own_old_lease_does_not_count() -> None:
    """A restarted peer goes back to the block that only it held."""
    leases = leases_of([1, 1, 1, 1])
    for block, lease in enumerate(leases):
        assert block == choose_block(tiny_overview(MANIFEST, leases), lease.peer_id)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 3), min_size=NUM_BLOCKS, max_size=NUM_BLOCKS),
    st.sets(st.integers(12, 23), min_size=1),
)
def test_joiners_fill_the_thinnest_blocks_first(counts: list[int], joiners: set[int]) -> None:
    """Nobody lands on a block that ends more than one above the thinnest."""
    overview = tiny_overview(MANIFEST, [*leases_of(counts), *joining(sorted(joiners))])
    after = list(counts)
    for index in joiners:
        after[choose_block(overview, PEERS[index].peer_id)] += 1
    grown = [after[block] for block in range(NUM_BLOCKS) if after[block] > counts[block]]
    assert sum(counts) + len(joiners) == sum(after)
    assert max(grown) <= min(after) + 1


@pytest.mark.parametrize("block", [0, 3])
def test_blocks_of_the_run_may_be_chosen(block: int) -> None:
    """From zero to the last."""
    check_block(block, NUM_BLOCKS)


@pytest.mark.parametrize("block", [-1, 4])
def test_other_blocks_are_refused(block: int) -> None:
    """The message names the range."""
    with pytest.raises(ConfigError, match=f"block {block} .* choose from 0 to 3"):
        check_block(block, NUM_BLOCKS)


@pytest.mark.parametrize(
    ("counts", "expected"), [([0, 2, 1, 0], 2), ([0, 1, 1, 0], 1), ([0, 0, 9, 0], 1)]
)
def test_a_peer_with_a_span_takes_its_thinnest_block(counts: list[int], expected: int) -> None:
    """However thin others are."""
    overview = tiny_overview(MANIFEST, leases_of(counts))
    assert expected == choose_block(overview, PEERS[-1].peer_id, span=range(1, 3))


def test_a_paused_holder_does_not_count() -> None:
    """It serves its block, but nobody trains it."""
    leases = leases_of([1, 1, 1, 1])
    leases[2] = leases[2].model_copy(update={"is_paused": True})
    assert 2 == choose_block(tiny_overview(MANIFEST, leases), PEERS[-1].peer_id)


def test_spans_are_written_like_slices() -> None:
    """The end is not part of it."""
    assert (range(2), range(3, 4)) == (parse_span("0:2"), parse_span("3:4"))


@pytest.mark.parametrize(
    "text", ["", "2", "0-2", ":2", "0:", "-1:2", "a:b", "0:2:4", "2:2", "3:1", "0:17"]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    """With the text that was given."""
    with pytest.raises(ConfigError, match=f"span '?{text}"):
        parse_span(text)


def test_a_span_fits_the_run_and_the_block() -> None:
    """Both problems are named."""
    check_span(range(NUM_BLOCKS), 0, NUM_BLOCKS)
    check_span(range(1, 2), None, NUM_BLOCKS)
    with pytest.raises(ConfigError, match=r"span 2:5 ends behind .* 0:4"):
        check_span(range(2, 5), None, NUM_BLOCKS)
    with pytest.raises(ConfigError, match="block 0 is not in span 1:3"):
        check_span(range(1, 3), 0, NUM_BLOCKS)
