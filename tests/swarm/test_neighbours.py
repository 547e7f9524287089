"""Real peers that are cut off find each other again, and notice a wrong clock."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import time
from pathlib import Path

import pytest

from bt_p2p.protocol.address import PeerAddress, parse_peer_addresses
from bt_p2p.testing.clock import ManualClock
from tests.swarm.waiting import wait_until

pytestmark = pytest.mark.swarm

DEADLINE_S = 20.0
LATE_S = 61.0


@pytest.fixture
def swarm(tmp_path: Path):
    """Three peers, the first of which the others entered through."""
    from tests.swarm.local_peers import local_swarm

    with local_swarm(tmp_path, 3) as peers:
        yield [peer.swarm for peer in peers]


async def _in_dht_leave_all(_dht, node) -> None:
    """Break all connections, as an outage does."""
    for info in await node.p2p.list_peers():
        await node.p2p._client.disconnect(info.peer_id)


async def _in_dht_keeps_tasks(_dht, _node) -> bool:
    return asyncio.get_running_loop().get_task_factory() is not None


def cut_off(peer) -> None:
    """Until it has no neighbour."""
    from bt_p2p.swarm.bridge import call_in_dht
    from bt_p2p.swarm.neighbours import neighbours

    def is_alone() -> bool:
        call_in_dht(peer.dht, _in_dht_leave_all, timeout_s=5, what="leaving all")
        return not neighbours(peer)

    wait_until(is_alone, deadline_s=DEADLINE_S)


class Watched:
    """The neighbourhood of a peer, looked after by the test."""

    def __init__(self, peer, known: list[PeerAddress]) -> None:
        from node.neighbourhood import Neighbourhood

        self.clock = ManualClock()
        self.warnings: dict[str, str] = {}
        self.rejoined: list[bool] = []
        self.neighbourhood = Neighbourhood(
            peer,
            lambda: known,
            self.warnings.__setitem__,
            self.clock,
            on_rejoin=lambda: self.rejoined.append(True),
        )


def addresses(*peers) -> list[PeerAddress]:
    """Where peers can be dialled."""
    return parse_peer_addresses(address for peer in peers for address in peer.addresses()[:1])


def test_a_node_cut_off_rejoins_without_the_peer_it_entered_through(swarm) -> None:
    """Any peer it remembers will do; the user is told when it is isolated, and when no longer."""
    from bt_p2p.swarm.neighbours import neighbours

    entry, other, lost = swarm
    known = addresses(entry)
    watched = Watched(lost, known)
    entry.stop()
    cut_off(lost)

    watched.neighbourhood.look()
    watched.clock.advance(LATE_S)
    watched.neighbourhood.look()
    assert "no peer is connected; 1 known addresses" in watched.warnings["isolated"]
    assert [] == watched.rejoined

    known += addresses(other)
    watched.clock.advance(LATE_S)
    watched.neighbourhood.look()

    assert "" == watched.warnings["isolated"]
    assert [True] == watched.rejoined
    assert {other.peer_id} == neighbours(lost)


def test_two_halves_of_a_swarm_find_each_other(swarm, tmp_path: Path) -> None:
    """A node that has neighbours dials others it knows now and then; records cross over."""
    from bt_p2p.protocol.limits import ROUTINE_REDIAL_S
    from bt_p2p.swarm.directory import HivemindDirectory
    from bt_p2p.swarm.neighbours import neighbours
    from bt_p2p.testing.tiny import tiny_manifest
    from tests.swarm.local_peers import local_swarm

    manifest = tiny_manifest()
    with local_swarm(tmp_path, 2) as found:
        half = [peer.swarm for peer in found]
        HivemindDirectory(half[0].dht).publish(manifest)
        watched = Watched(swarm[1], addresses(half[1]))
        watched.neighbourhood.look()
        assert half[1].peer_id not in neighbours(swarm[1])

        watched.clock.advance(ROUTINE_REDIAL_S)
        watched.neighbourhood.look()

        assert half[1].peer_id in neighbours(swarm[1])
        directory = HivemindDirectory(swarm[1].dht)
        wait_until(lambda: manifest.run_id in directory.runs(), deadline_s=DEADLINE_S)
        assert not any(watched.warnings.values())


def test_a_wrong_clock_is_told_to_its_owner_only(swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node starts nevertheless: its clock may be set right at any time."""
    import hivemind.dht.protocol

    from bt_p2p.protocol.clock_vote import clock_problem
    from bt_p2p.swarm import neighbours
    from bt_p2p.swarm.process import PeerOptions, start_peer

    with monkeypatch.context() as patch:  # inherited by the forked DHT process
        for module in (hivemind.dht.protocol, neighbours):
            patch.setattr(module, "get_dht_time", lambda: time.time() + 47)
        wrong = start_peer(
            PeerOptions(initial_peers=tuple(addresses(*swarm)), listen=("/ip4/127.0.0.1/tcp/0",))
        )
    try:
        wait_until(lambda: 3 == len(neighbours.neighbours(wrong)), deadline_s=DEADLINE_S)
        watched = Watched(wrong, [])
        watched.neighbourhood.look()

        expected = "your clock is 47 s ahead of the swarm (3 peers asked)"
        assert watched.warnings["clock-off"].startswith(expected)
        assert watched.warnings["clock-off"] == watched.neighbourhood.clock_problem
        assert "" == clock_problem(neighbours.clock_leads_s(swarm[0]))
    finally:
        wrong.stop()


def test_dead_and_deaf_parts_of_a_peer_are_told(swarm) -> None:
    """Each in its own words."""
    from bt_p2p.swarm.bridge import call_in_dht
    from bt_p2p.swarm.health import peer_problem

    keeps = call_in_dht(swarm[0].dht, _in_dht_keeps_tasks, timeout_s=5, what="asking")
    assert keeps, "calls to the DHT process can be lost"
    ask = functools.partial(peer_problem, timeout_s=2.0)
    assert ["", "", ""] == [ask(peer) for peer in swarm]

    os.kill(swarm[0].dht.pid, signal.SIGSTOP)
    assert "no answer from the DHT within 2 s" in ask(swarm[0])
    os.kill(swarm[0].dht.pid, signal.SIGCONT)
    wait_until(lambda: not ask(swarm[0]), deadline_s=DEADLINE_S)

    swarm[1]._daemons[0].kill()
    wait_until(
        lambda: (
            "the peer-to-peer daemon has ended" in ask(swarm[1])
            or "the connection to the peer-to-peer daemon has ended" in ask(swarm[1])
        ),
        deadline_s=DEADLINE_S,
    )
    assert swarm[1].dht.is_alive()

    swarm[2].dht.kill()
    wait_until(
        lambda: ask(swarm[2]) == "the DHT process of this node has ended", deadline_s=DEADLINE_S
    )
