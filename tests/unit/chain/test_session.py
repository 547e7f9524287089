"""bt_p2p.chain.session: traversals, and another holder when one fails."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
import torch

from bt_p2p.chain.block_rpc import ForwardRequest, Readiness
from bt_p2p.chain.forwarded import MAX_FORWARD_FAILURES
from bt_p2p.chain.session import Traversal
from bt_p2p.errors import ChainError, NoRouteError, PeerRefusedError
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import tiny_manifest

TOKENS_NT = torch.tensor([[116, 104, 101, 32]])
PLAIN = tiny_manifest()
CASCADE = tiny_manifest(objective="cascade")
DIFFUSION = tiny_manifest(objective="diffusion")


def traverse(swarm, mode="read") -> Traversal:
    """The last position of four bytes."""
    z_NPZ = None
    if mode == "advance":
        z_NPZ = swarm.session.objective.initial_noise(1, 1, torch.Generator().manual_seed(0))
    return asyncio.run(swarm.session.traverse(TOKENS_NT, start=3, mode=mode, z_NPZ=z_NPZ))


class Recorder(InMemoryBlockClient):
    """Keeps requests, and how many were in flight at once."""

    def __init__(self, services) -> None:
        super().__init__(services)
        self.requests: list[ForwardRequest] = []
        self.replies = []
        self.in_flight = self.most_in_flight = 0

    async def forward(self, peer_id, request, *, timeout_s):
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        try:
            reply = await super().forward(peer_id, request, timeout_s=timeout_s)
        finally:
            self.in_flight -= 1
        self.replies.append(reply)
        return reply


def recorded(swarm) -> Recorder:
    """Put a recorder between session and holders."""
    swarm.session._holders._client = Recorder(swarm.client.services)
    return swarm.session._holders._client


def test_every_block_is_asked_once(small_swarm) -> None:
    """One hop for each block, in order, from one look at the swarm."""
    swarm = small_swarm(PLAIN, [1, 2, 1])
    found = traverse(swarm)
    assert [(0, 0), (1, 0), (2, 0)] == [(hop.block, hop.round_index) for hop in found.hops]
    assert [holders[0] for holders in swarm.holders] == [hop.peer_id for hop in found.hops]
    assert ((), 1, 1) == (found.failed_peers, swarm.num_look_ups, swarm.session.num_traversals)
    assert [(1, 1, 256)] * 3 == [tuple(each.shape) for each in found.per_block_log_probs]
    torch.testing.assert_close(torch.ones(1, 1), found.log_probs_NPV.exp().sum(-1))


def test_the_swarm_is_not_read_again_while_all_is_well(small_swarm) -> None:
    """Traversals are many."""
    swarm = small_swarm(PLAIN, [1, 1, 1])
    traverse(swarm)
    traverse(swarm)
    assert (1, 2) == (swarm.num_look_ups, swarm.session.num_traversals)


@pytest.mark.parametrize("manifest", [PLAIN, DIFFUSION], ids=["plain", "diffusion"])
def test_reads_ask_all_blocks_at_once(small_swarm, manifest) -> None:
    """Honest log-probabilities need no other block, whatever the objective."""
    swarm = small_swarm(manifest, [1, 1, 1])
    recorder = recorded(swarm)
    traverse(swarm)
    assert 3 == recorder.most_in_flight


def test_plain_blocks_advance_at_once(small_swarm) -> None:
    """Nothing is handed on."""
    swarm = small_swarm(PLAIN, [1, 1, 1])
    recorder = recorded(swarm)
    traverse(swarm, "advance")
    assert (3, [None] * 3) == (recorder.most_in_flight, [each.z_NPZ for each in recorder.requests])


@pytest.fixture
def carrying(monkeypatch) -> None:
    """Clients carry what blocks need themselves."""
    monkeypatch.setattr("bt_p2p.chain.forwarded.MAX_FORWARD_FAILURES", 0)


@pytest.mark.parametrize(
    ("manifest", "mode"),
    [(CASCADE, "read"), (CASCADE, "advance"), (DIFFUSION, "advance")],
    ids=["cascade-read", "cascade-advance", "diffusion-advance"],
)
def test_holders_hand_on_to_each_other(small_swarm, monkeypatch, manifest, mode) -> None:
    """All are asked at once, nothing passes through the client, and the answer is the same."""
    swarm = small_swarm(manifest, [1, 1, 1])
    recorder = recorded(swarm)
    found = traverse(swarm, mode)
    assert 3 == recorder.most_in_flight
    first, second, third = recorder.requests
    assert (None, second.takes_from) == (first.takes_from, first.hands_to.link_id)
    assert (third.takes_from, None) == (second.hands_to.link_id, third.hands_to)
    assert [second.hands_to.peer_id, first.hands_to.peer_id] == [
        swarm.holders[2][0],
        swarm.holders[1][0],
    ]
    assert second.takes_from != third.takes_from
    assert [None] * 5 == [
        second.z_NPZ,
        third.z_NPZ,
        *(reply.z_NPZ for reply in recorder.replies),
    ]
    assert [None] * 3 == [reply.features_NTD for reply in recorder.replies]
    assert found.is_forwarded

    monkeypatch.setattr("bt_p2p.chain.forwarded.MAX_FORWARD_FAILURES", 0)
    carried = traverse(small_swarm(manifest, [1, 1, 1]), mode)
    assert torch.equal(carried.log_probs_NPV, found.log_probs_NPV)
    assert not carried.is_forwarded


def test_a_holder_that_freezes_holds_up_a_forwarded_traversal_only_once(
    small_swarm, monkeypatch
) -> None:
    """Another replica takes its place, and holders hand on to each other again."""
    monkeypatch.setattr("bt_p2p.chain.holders.FIRST_PATIENCE_S", 0.1)
    expected = traverse(small_swarm(CASCADE, [1, 1, 1]))
    swarm = small_swarm(CASCADE, [1, 2, 1])
    frozen, spare = swarm.holders[1]
    swarm.faults.always(frozen, "delay")

    async def twice() -> list[Traversal]:
        return [await swarm.session.traverse(TOKENS_NT, start=3, mode="read") for _ in range(2)]

    found = asyncio.run(twice())
    assert [False, True] == [each.is_forwarded for each in found]
    for each in found:
        assert torch.equal(expected.log_probs_NPV, each.log_probs_NPV)
        assert spare == each.hops[1].peer_id


@pytest.mark.parametrize("manifest", [PLAIN, CASCADE], ids=["plain", "cascade"])
def test_a_block_whose_only_holder_was_given_up_is_looked_for_again(small_swarm, manifest) -> None:
    """The holder has come back since."""
    swarm = small_swarm(manifest, [1, 1, 1])
    expected = traverse(swarm)
    swarm.session._holders._route = swarm.session._holders._route.without(swarm.holders[1][0])
    found = traverse(swarm)
    assert torch.equal(expected.log_probs_NPV, found.log_probs_NPV)
    assert swarm.num_look_ups > 1


def test_holders_that_cannot_reach_each_other_are_served_by_the_client(small_swarm) -> None:
    """After a few traversals in vain it no longer tries; every answer is right."""

    class NoLinks(InMemoryBlockClient):
        num_tries = 0

        async def forward(self, peer_id, request, *, timeout_s):
            if request.takes_from is not None:
                type(self).num_tries += 1
                raise PeerRefusedError("nothing was handed on", peer_id=peer_id)
            return await super().forward(peer_id, request, timeout_s=timeout_s)

    expected = traverse(small_swarm(CASCADE, [1, 1, 1]))
    swarm = small_swarm(CASCADE, [1, 1, 1])
    swarm.session._holders._client = NoLinks(swarm.client.services)
    for _ in range(5):
        found = traverse(swarm)
        assert torch.equal(expected.log_probs_NPV, found.log_probs_NPV)
        assert not found.is_forwarded
    assert 2 * MAX_FORWARD_FAILURES == NoLinks.num_tries


@pytest.mark.usefixtures("carrying")
def test_diffusion_blocks_advance_in_order_and_hand_on_z(small_swarm) -> None:
    """Each block gets what the one before it made of the noise."""
    swarm = small_swarm(DIFFUSION, [1, 1, 1])
    recorder = recorded(swarm)
    traverse(swarm, "advance")
    assert (1, [0, 1, 2]) == (
        recorder.most_in_flight,
        [request.block for request in recorder.requests],
    )
    for reply, request in zip(recorder.replies, recorder.requests[1:], strict=False):
        assert torch.equal(reply.z_NPZ, request.z_NPZ)
    assert not torch.equal(recorder.requests[0].z_NPZ, recorder.requests[1].z_NPZ)


def test_a_holder_that_freezes_is_asked_beside_another_one(small_swarm, monkeypatch) -> None:
    """The answer comes from the second after a short while, and later ones at once."""
    monkeypatch.setattr("bt_p2p.chain.holders.FIRST_PATIENCE_S", 0.1)
    expected = traverse(small_swarm(PLAIN, [1, 1, 1]))
    swarm = small_swarm(PLAIN, [1, 2, 1])
    frozen, spare = swarm.holders[1]
    swarm.faults.always(frozen, "delay")

    async def twice() -> list[Traversal]:
        return [await swarm.session.traverse(TOKENS_NT, start=3, mode="read") for _ in range(2)]

    started_s = time.monotonic()
    found = asyncio.run(twice())
    assert 2.0 > time.monotonic() - started_s
    for each in found:
        assert torch.equal(expected.log_probs_NPV, each.log_probs_NPV)
        assert spare == each.hops[1].peer_id
    assert [frozen, spare, spare] == swarm.asked()[1]


def test_a_slow_holder_that_answers_first_wins(small_swarm, monkeypatch) -> None:
    """The spare is slower still; its request is given up."""
    monkeypatch.setattr("bt_p2p.chain.holders.FIRST_PATIENCE_S", 0.1)
    swarm = small_swarm(PLAIN, [1, 2, 1])
    slow, spare = swarm.holders[1]
    swarm.faults.once(slow, "delay", delay_s=0.3)
    swarm.faults.once(spare, "delay")
    found = traverse(swarm)
    assert (slow, ()) == (found.hops[1].peer_id, found.failed_peers)
    assert {slow, spare} == set(swarm.asked()[1])


@pytest.mark.usefixtures("carrying")
@pytest.mark.parametrize("mode", ["read", "advance"])
def test_cascade_blocks_answer_in_order_and_hand_on_features(small_swarm, mode) -> None:
    """Block 0 gets none; each other one those of the block before it."""
    swarm = small_swarm(CASCADE, [1, 1, 1])
    recorder = recorded(swarm)
    traverse(swarm, mode)
    assert (1, None) == (recorder.most_in_flight, recorder.requests[0].features_NTD)
    for reply, request in zip(recorder.replies, recorder.requests[1:], strict=False):
        assert torch.equal(reply.features_NTD, request.features_NTD)


class Spoiling:
    """A holder that hands on something else."""

    def __init__(self, service, spoilt) -> None:
        self._service = service
        self._spoilt = spoilt

    async def forward(self, request, *, asker):
        return replace(await self._service.forward(request, asker=asker), features_NTD=self._spoilt)


@pytest.mark.parametrize("is_carrying", [False, True], ids=["forwarded", "carried"])
@pytest.mark.parametrize(
    "spoilt",
    [torch.zeros(1, 4, 17), torch.full((1, 4, 16), torch.nan), None],
    ids=["width", "nan", "none"],
)
def test_features_that_the_next_block_cannot_use_are_a_failed_holder(
    small_swarm, monkeypatch, spoilt, is_carrying
) -> None:
    """Another replica is asked, and the answer is the same; the next holder is not blamed."""
    if is_carrying:
        monkeypatch.setattr("bt_p2p.chain.forwarded.MAX_FORWARD_FAILURES", 0)
    expected = traverse(small_swarm(CASCADE, [1, 1, 1]))
    swarm = small_swarm(CASCADE, [2, 1, 1])
    bad = swarm.holders[0][0]

    swarm.client.services[bad] = Spoiling(swarm.client.services[bad], spoilt)
    found = traverse(swarm)
    assert torch.equal(expected.log_probs_NPV, found.log_probs_NPV)
    assert 1 == len(found.failed_peers)
    assert found.failed_peers[0].startswith(f"…{bad[-6:]}: features")


@pytest.mark.parametrize("kind", ["drop", "refuse", "truncate", "wrong_shape", "not_finite"])
@pytest.mark.parametrize("mode", ["read", "advance"])
@pytest.mark.parametrize(
    "manifest", [PLAIN, CASCADE, DIFFUSION], ids=["plain", "cascade", "diffusion"]
)
def test_another_replica_answers_when_one_fails(small_swarm, manifest, mode, kind) -> None:
    """The answer is the same, and the failed peer is named."""
    expected = traverse(small_swarm(manifest, [1, 1, 1]), mode)
    swarm = small_swarm(manifest, [1, 2, 1])
    first, second = swarm.holders[1]
    swarm.faults.once(first, kind)

    found = traverse(swarm, mode)

    assert torch.equal(expected.log_probs_NPV, found.log_probs_NPV)
    if kind == "refuse" and swarm.session.objective.is_sequential(mode):
        # who refuses may have been handed nonsense: it is asked again by us, and answers
        assert (first, ()) == (found.hops[1].peer_id, found.failed_peers)
        return
    assert (second, [first, second]) == (found.hops[1].peer_id, swarm.asked()[1])
    assert 1 == len(found.failed_peers)
    assert found.failed_peers[0].startswith(f"…{first[-6:]}: ")


def test_a_failed_peer_is_not_asked_in_the_next_traversal(small_swarm) -> None:
    """A peer that hangs would cost its deadline for every byte."""
    swarm = small_swarm(PLAIN, [1, 2, 1])
    first, second = swarm.holders[1]
    swarm.faults.always(first, "drop")
    traverse(swarm)
    again = traverse(swarm)
    assert ((), [first, second, second]) == (again.failed_peers, swarm.asked()[1])


def test_a_peer_that_came_after_the_first_look_is_found(small_swarm) -> None:
    """When a block runs out of holders the swarm is read again."""
    swarm = small_swarm(PLAIN, [1, 2, 1])
    first, second = swarm.holders[1]
    late = next(lease for lease in swarm.leases if lease.peer_id == second)
    swarm.leases.remove(late)
    traverse(swarm)
    swarm.leases.append(late)
    swarm.faults.always(first, "refuse")

    found = traverse(swarm)

    assert second == found.hops[1].peer_id
    assert swarm.num_look_ups > 1


@pytest.mark.parametrize("mode", ["read", "advance"])
def test_when_all_holders_fail_each_is_named(small_swarm, mode) -> None:
    """With its reason; a later traversal tries them again."""
    swarm = small_swarm(PLAIN, [1, 2, 1])
    for peer_id in swarm.holders[1]:
        swarm.faults.once(peer_id, "refuse")

    with pytest.raises(ChainError) as caught:
        traverse(swarm, mode)

    assert "block 1 of 3" in str(caught.value)
    for peer_id in swarm.holders[1]:
        assert f"…{peer_id[-6:]} refused" in str(caught.value)
    assert ((), 1) == (traverse(swarm, mode).failed_peers, swarm.session.num_traversals)


def test_a_block_without_holder_is_no_route(small_swarm) -> None:
    """Nobody is asked at all."""
    swarm = small_swarm(PLAIN, [1, 0, 1])
    with pytest.raises(NoRouteError, match="no live node holds block 1 of 3") as caught:
        traverse(swarm)
    assert ((1,), []) == (caught.value.missing_blocks, swarm.client.calls)


def test_a_holder_of_another_run_is_a_failed_peer(small_swarm) -> None:
    """Its lease lied; its own refusal says so."""
    swarm = small_swarm(PLAIN, [1, 2, 1])
    first = swarm.holders[1][0]
    swarm.client.services[first] = swarm.client.services[swarm.holders[0][0]]
    found = traverse(swarm)
    assert "this peer serves block 0" in found.failed_peers[0]


def test_answers_keep_the_round_of_their_weights(small_swarm) -> None:
    """Hops show how old the model is."""
    swarm = small_swarm(PLAIN, [1, 1, 1])
    service = swarm.client.services[swarm.holders[2][0]]
    service.adopt(service.served_weights(), 7)
    assert [0, 0, 7] == [hop.round_index for hop in traverse(swarm).hops]


@pytest.fixture
def probing(small_swarm, monkeypatch) -> None:
    """Sessions measure holders before the first traversal."""
    assert small_swarm  # which says otherwise
    monkeypatch.setattr("bt_p2p.chain.holders.MAX_PROBES", 4)


@pytest.mark.usefixtures("probing")
def test_the_holder_that_answers_soonest_is_asked(small_swarm) -> None:
    """Far or busy ones are left alone; blocks without a choice are not measured."""
    swarm = small_swarm(PLAIN, [1, 3, 1])
    busy, far, near = swarm.holders[1]
    swarm.faults.always(far, "delay", delay_s=0.3)
    swarm.client.services[busy].readiness = lambda *_: Readiness(
        round_index=0, num_waiting=9, compute_ms=50
    )
    assert near == traverse(swarm).hops[1].peer_id
    assert {busy, far, near} == set(swarm.session._holders.probed_s)


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize("kind", ["drop", "refuse", "delay"])
def test_a_ghost_is_not_asked_while_another_answers(small_swarm, monkeypatch, kind) -> None:
    """Its lease lives on after it; no traversal waits for it."""
    monkeypatch.setattr("bt_p2p.chain.holders.PROBE_TIMEOUT_S", 0.2)
    swarm = small_swarm(PLAIN, [1, 2, 1])
    ghost, there = swarm.holders[1]
    swarm.faults.always(ghost, kind)
    found = traverse(swarm)
    assert (there, (), [there]) == (found.hops[1].peer_id, found.failed_peers, swarm.asked()[1])


@pytest.mark.usefixtures("probing")
def test_when_no_holder_answers_the_question_they_are_asked_all_the_same(
    small_swarm, monkeypatch
) -> None:
    """A slow answer is better than none."""
    monkeypatch.setattr("bt_p2p.chain.holders.PROBE_TIMEOUT_S", 0.05)
    swarm = small_swarm(PLAIN, [1, 2, 1])
    for peer_id in swarm.holders[1]:
        swarm.faults.always(peer_id, "delay", delay_s=0.2)
    assert traverse(swarm).hops[1].peer_id in swarm.holders[1]


@pytest.mark.usefixtures("probing")
def test_what_answers_took_counts_more_than_the_first_measurement(small_swarm) -> None:
    """After a new look at the swarm, too."""
    swarm = small_swarm(PLAIN, [1, 2, 1])
    first = traverse(swarm).hops[1].peer_id
    [other] = set(swarm.holders[1]) - {first}
    swarm.session._holders.latency_s[first] = 9.0
    swarm.session._holders._route = None
    assert other == traverse(swarm).hops[1].peer_id
