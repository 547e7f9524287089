"""What one stranger may take of a server, at moments that a test chooses."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_p2p.errors import BusyError, ConfigError
from bt_p2p.swarm.quotas import QuotaLimits, Quotas
from bt_p2p.testing.clock import ManualClock

LIMITS = QuotaLimits(
    max_streams=16,
    max_requests=16,
    max_bodies_size_bytes=1000,
    requests_per_s=10,
    bytes_per_s=100,
    burst_s=2,
    max_malformed=3,
    penalty_s=60,
    max_peers=4,
)


def quotas(**changes) -> tuple[Quotas, ManualClock]:
    """Small ones."""
    clock = ManualClock()
    values = {name: getattr(LIMITS, name) for name in LIMITS.__slots__}
    return Quotas(QuotaLimits(**values | changes), clock), clock


@pytest.mark.parametrize("kind", ["stream", "request"])
def test_one_peer_gets_a_quarter_and_the_others_still_get_in(kind) -> None:
    """What it gives back it may take again."""
    found, _ = quotas()
    take = getattr(found, kind)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(take("greedy"))
        with pytest.raises(BusyError, match=r"4 .* are yours, allowed are 4"), take("greedy"):
            pass
        with take("modest"):
            pass
    with take("greedy"):
        pass


def test_all_peers_together_get_no_more_than_all() -> None:
    """Many ids do not help."""
    found, _ = quotas(max_peers=100)
    with contextlib.ExitStack() as stack:
        for index in range(16):
            stack.enter_context(found.stream(f"peer {index}"))
        with pytest.raises(BusyError, match="16 streams open in all"), found.stream("one more"):
            pass
    assert 0 == found.num_streams


def test_memory_is_counted_as_it_comes_and_is_free_afterwards() -> None:
    """A quarter for each peer, and a total."""
    found, _ = quotas(bytes_per_s=1e6, max_peers=10)
    with contextlib.ExitStack() as stack:
        for index in range(4):
            memory = stack.enter_context(found.memory(f"peer {index}"))
            memory.take(100)
            memory.take(150)
            with pytest.raises(BusyError, match="your requests take 250 bytes, allowed are 250"):
                memory.take(1)
        memory = stack.enter_context(found.memory("one more"))
        with pytest.raises(BusyError, match="all requests take 1000 bytes"):
            memory.take(1)
    assert 0 == found.size_bytes


def test_requests_come_back_with_time() -> None:
    """A burst first, then so many a second."""
    found, clock = quotas()

    def num_taken() -> int:
        count = 0
        with contextlib.suppress(BusyError):
            while count < 1000:
                with found.request("peer"):
                    count += 1
        return count

    assert 20 == num_taken()
    with pytest.raises(BusyError, match="over 10 requests of yours in a second"):
        found.request("peer").__enter__()
    clock.advance(0.5)
    assert 5 == num_taken()
    clock.advance(1000)
    assert 20 == num_taken()


def test_bytes_come_back_with_time() -> None:
    """One that is over the rate takes nothing."""
    found, clock = quotas()
    with found.memory("peer") as memory:
        memory.take(150)
    with found.memory("peer") as memory, pytest.raises(BusyError, match="over 100 bytes of yours"):
        memory.take(51)
    assert 0 == found.size_bytes
    clock.advance(0.01)
    with found.memory("peer") as memory:
        memory.take(51)


def test_a_peer_that_sends_rubbish_is_refused_for_a_while() -> None:
    """Some is forgiven; afterwards it starts anew."""
    found, clock = quotas()
    for _ in range(3):
        found.blame("bad")
    with found.stream("bad"), found.request("bad"):
        found.blame("bad")
        with pytest.raises(BusyError, match="refused for 60 s more: over 3 malformed"):
            found.request("bad").__enter__()
        clock.advance(59)
        with pytest.raises(BusyError, match="refused for 1 s more"):
            found.stream("bad").__enter__()
        with found.stream("good"):
            pass
        clock.advance(2)
        with found.request("bad"):
            pass


def test_rubbish_now_and_then_is_forgiven() -> None:
    """An old program is not an attack."""
    found, clock = quotas()
    for _ in range(20):
        found.blame("old")
        clock.advance(21)
    with found.stream("old"):
        pass


def test_the_table_of_peers_is_bounded_and_forgets_the_idle_first() -> None:
    """Those that have something, or are refused, stay as long as possible."""
    found, _ = quotas()
    for _ in range(4):
        found.blame("bad")
    with contextlib.ExitStack() as stack:
        stack.enter_context(found.memory("active"))
        for index in range(10):
            with found.stream(f"passing {index}"):
                pass
        assert 4 == len(found._peers)
        with pytest.raises(BusyError, match="malformed"), found.stream("bad"):
            pass
        for peer_id in "abc":
            stack.enter_context(found.stream(peer_id))
        with pytest.raises(BusyError, match="too many peers"), found.stream("d"):
            pass


def test_impossible_limits_are_refused() -> None:
    """A rate of nothing would refuse all."""
    with pytest.raises(ConfigError, match="above 0"):
        QuotaLimits(requests_per_s=0)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["s", "r", "m", "b", "t"]))))
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
def test_whatever_happens_no_total_is_passed_and_all_comes_back(events) -> None:
    """Peers that open, send, fail and come back in any order."""
    found, clock = quotas()
    with contextlib.ExitStack() as stack:
        for peer_id, event in events:
            with contextlib.suppress(BusyError):
                match event:
                    case "s":
                        stack.enter_context(found.stream(peer_id))
                    case "r":
                        stack.enter_context(found.request(peer_id))
                    case "m":
                        stack.enter_context(found.memory(peer_id)).take(90)
                    case "b":
                        found.blame(peer_id)
                    case "t":
                        clock.advance(3)
            assert found.num_streams <= 16
            assert found.num_requests <= 16
            assert found.size_bytes <= 1000
            assert len(found._peers) <= 4
    assert 0 == found.num_streams == found.num_requests == found.size_bytes
    assert all(peer.is_idle and peer.size_bytes == 0 for peer in found._peers.values())
