"""Leases stay alive, carry what changed, and are withdrawn."""

from __future__ import annotations

import threading

from bt_p2p.errors import SwarmError
from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.limits import LEASE_TTL_S, TWIN_GONE_S, TWIN_PERIOD_S
from bt_p2p.protocol.overview import SwarmOverview
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.directory import InMemoryDirectory, SharedRecords
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from node.keeper import LeaseKeeper

DEADLINE_S = 5.0


class Bench:
    """A keeper over an in-memory directory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.manifest = tiny_manifest()
        self.identity = tiny_identity(1)
        self.records = SharedRecords(self.clock)
        self.directory = InMemoryDirectory(self.records, self.identity)
        self.round_index = 0
        self.views: list[SwarmOverview] = []
        self.has_view = threading.Event()
        self.keeper = LeaseKeeper(
            self.directory, self.manifest, self.describe, self.clock, self.see
        )

    def describe(self, issued_at_s: float, expires_at_s: float) -> Lease:
        lease = tiny_lease(self.manifest, self.identity, round_index=self.round_index)
        return lease.model_copy(update={"issued_at_s": issued_at_s, "expires_at_s": expires_at_s})

    def announce_as(self, boot_id: str) -> None:
        """As another node with the same key would."""
        now_s = self.clock.now_s()
        update = {"boot_id": boot_id, "addresses": ["/ip4/203.0.113.7/tcp/1"]}
        self.directory.announce(self.describe(now_s, now_s + LEASE_TTL_S).model_copy(update=update))

    def see(self, overview: SwarmOverview) -> None:
        self.views.append(overview)
        self.has_view.set()


def test_a_started_keeper_announces_and_publishes() -> None:
    """Others find the lease and the manifest; the keeper hands out a view of them."""
    bench = Bench()
    bench.keeper.start()

    assert bench.has_view.wait(DEADLINE_S)
    assert 1 == bench.views[0].num_peers
    assert bench.manifest.run_id in bench.directory.runs()
    bench.keeper.stop(timeout_s=DEADLINE_S)


def test_a_recent_view_is_used_again() -> None:
    """An older one is not: the directory is read anew."""
    bench = Bench()
    bench.keeper.start()
    assert bench.has_view.wait(DEADLINE_S)
    bench.keeper.stop(timeout_s=DEADLINE_S)  # withdraws the lease
    assert 1 == bench.keeper.recent_view(3.0).num_peers
    bench.clock.advance(3.5)
    assert 0 == bench.keeper.recent_view(3.0).num_peers


def test_a_poke_announces_what_changed() -> None:
    """The new round is visible without waiting for the next renewal."""
    bench = Bench()
    bench.keeper.start()
    assert bench.has_view.wait(DEADLINE_S)
    bench.has_view.clear()
    bench.round_index = 7
    bench.clock.advance(1)

    bench.keeper.poke()

    assert bench.has_view.wait(DEADLINE_S)
    assert 7 == bench.views[-1].blocks[0].round_index
    bench.keeper.stop(timeout_s=DEADLINE_S)


def test_stopping_withdraws_the_lease() -> None:
    """Nobody routes to a node that has left."""
    bench = Bench()
    bench.keeper.renew()
    bench.clock.advance(1)

    bench.keeper.stop(timeout_s=DEADLINE_S)

    assert () == bench.directory.read(bench.manifest).leases


def test_a_silent_directory_is_a_problem_until_it_answers() -> None:
    """The thread goes on, and says what is wrong."""
    bench = Bench()
    answer = bench.directory.announce
    has_failed = threading.Event()

    def fail(lease: Lease) -> None:
        has_failed.set()
        raise SwarmError("no answer from the DHT")

    bench.directory.announce = fail  # type: ignore[method-assign]
    bench.keeper.start()
    assert has_failed.wait(DEADLINE_S)

    bench.directory.announce = answer  # type: ignore[method-assign]
    bench.keeper.poke()
    assert bench.has_view.wait(DEADLINE_S)
    bench.keeper.stop(timeout_s=DEADLINE_S)

    assert "" == bench.keeper.problem


def test_another_node_with_the_same_key_is_seen_before_its_lease_is_replaced() -> None:
    """Both write to one place, so the look comes before the renewal; it is told where the other is."""
    bench = Bench()
    bench.keeper.start()
    assert bench.has_view.wait(DEADLINE_S)
    for _ in range(2):  # a twin stays until it is gone for long
        bench.clock.advance(TWIN_PERIOD_S)
        bench.announce_as("elsewhere")
        bench.has_view.clear()
        bench.keeper.poke()
        assert bench.has_view.wait(DEADLINE_S)
        words = bench.keeper.twins.words(now_s=bench.clock.now_s())
        assert words.startswith(
            "another node with this key holds block 0 at /ip4/203.0.113.7/tcp/1;"
        )
    bench.clock.advance(TWIN_GONE_S + 1)
    bench.has_view.clear()
    bench.keeper.poke()
    assert bench.has_view.wait(DEADLINE_S)
    bench.keeper.stop(timeout_s=DEADLINE_S)
    assert "" == bench.keeper.twins.words(now_s=bench.clock.now_s())


def test_what_an_earlier_life_has_left_is_no_twin() -> None:
    """A quick restart finds its own old lease, signed before it began."""
    bench = Bench()
    bench.keeper.renew()
    old = bench.describe(bench.clock.now_s() - 1, bench.clock.now_s() + LEASE_TTL_S)
    leases = LeaseView(leases=(old.model_copy(update={"boot_id": "before"}),), num_invalid=0)
    own = bench.describe(bench.clock.now_s(), bench.clock.now_s() + LEASE_TTL_S)
    bench.keeper.twins.see(leases, own, now_s=bench.clock.now_s())
    assert bench.keeper.twins.twin is None
