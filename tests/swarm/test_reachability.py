"""Real peers dial each other back, time their link, and are found behind a relay."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from bt_p2p.clock import SystemClock
from bt_p2p.errors import PeerRefusedError, PeerUnreachableError
from bt_p2p.protocol.address import parse_peer_address, parse_peer_addresses
from bt_p2p.protocol.identity import PeerIdentity

pytestmark = pytest.mark.swarm

STRANGER = PeerIdentity.generate().peer_id
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def start() -> Iterator:
    """Starts peers that end with this module; None stands for one that listens nowhere."""
    from bt_p2p.swarm.process import PeerOptions, start_peer

    with contextlib.ExitStack() as stack:

        def start_one(listen: str | None, *initial: str, **options):
            peer = start_peer(
                PeerOptions(
                    initial_peers=tuple(parse_peer_addresses(initial)),
                    listen=() if listen is None else (listen,),
                    **options,
                )
            )
            stack.callback(peer.stop)
            return peer

        yield start_one


@pytest.fixture(scope="module")
def public(start):
    """A peer that others can dial."""
    return start("/ip4/127.0.0.1/tcp/0")


def asked(peer):
    """What the neighbours of a peer say of it."""
    from bt_p2p.swarm.neighbour_help import ask_neighbours

    return peer.loop.run(ask_neighbours(peer.p2p), timeout_s=TIMEOUT_S)


def test_a_peer_that_can_be_dialled_learns_where(start) -> None:
    """By a fresh dial, not by the connection on which it asks; and nobody else can tell it."""
    first = start("/ip4/127.0.0.1/tcp/0")
    assert "unknown" == asked(first).verdict

    peer = start("/ip4/127.0.0.1/tcp/0", first.addresses()[0])

    found = asked(peer)
    assert ("yes", 1) == (found.verdict, found.num_helpers)
    assert (peer.addresses()[0].rpartition("/p2p/")[0],) == found.works


def test_announced_ports_of_nobody_and_of_others_are_told(start, public) -> None:
    """A closed port, and one at which another peer answers."""
    entry = public.addresses()[0]
    theirs = entry.rpartition("/p2p/")[0]
    peer = start("/ip4/127.0.0.1/tcp/0", entry, announce=("/ip4/127.0.0.1/tcp/1", theirs))

    found = asked(peer)

    assert "no" == found.verdict
    assert any("tcp/1: refused" in reason for reason in found.reasons)
    assert any("another peer answers there" in reason for reason in found.reasons)


def test_the_link_is_timed(start, public) -> None:
    """What comes back is what was sent."""
    from bt_p2p.swarm.checkup import echo

    peer = start(None, public.addresses()[0], is_client=True)
    timed = peer.loop.run(
        echo(peer.p2p, public.peer_id, size_bytes=100_000, clock=SystemClock()),
        timeout_s=TIMEOUT_S,
    )

    assert 100_000 == timed.size_bytes
    assert timed.round_trip_s > 0


def test_a_peer_that_listens_nowhere_is_found_behind_a_relay(start, public) -> None:
    """By its peer id alone; and not without a place at the relay."""
    from bt_p2p.swarm.checkup import echo

    entry = public.addresses()[0]
    hidden = start(None, entry, relays=(parse_peer_address(entry),))
    lost = start(None, entry, is_client=True)
    other = start(None, entry, is_client=True)  # else the hidden ones could dial it

    assert (public.peer_id,) == hidden.places.held
    assert [True] == [parse_peer_address(text).is_relayed for text in hidden.addresses()]

    def reach(peer_id: str):
        work = echo(other.p2p, peer_id, size_bytes=1000, clock=SystemClock())
        return other.loop.run(work, timeout_s=TIMEOUT_S)

    assert 1000 == reach(hidden.peer_id).size_bytes
    with pytest.raises(PeerUnreachableError):
        reach(lost.peer_id)


@pytest.mark.slow
def test_a_peer_behind_two_relays_goes_on_when_one_is_killed(start, public) -> None:
    """It says which place it has lost, and is found at the other one."""
    from bt_p2p.swarm.checkup import echo

    doomed = start("/ip4/127.0.0.1/tcp/0", public.addresses()[0])
    entries = (doomed.addresses()[0], public.addresses()[0])
    hidden = start(None, *entries, relays=tuple(map(parse_peer_address, entries)))
    other = start(None, *entries, is_client=True)
    assert {doomed.peer_id, public.peer_id} == set(hidden.places.held)

    doomed.stop(at_once=True)
    hidden.loop.run(hidden.places.reserve_all(), timeout_s=TIMEOUT_S)

    assert (public.peer_id,) == hidden.places.held
    assert {doomed.peer_id} == set(hidden.places.problems)
    work = echo(other.p2p, hidden.peer_id, size_bytes=1000, clock=SystemClock())
    assert 1000 == other.loop.run(work, timeout_s=TIMEOUT_S).size_bytes


def test_who_is_no_relay_says_so(start, public) -> None:
    """A hidden peer does not lend itself, and a stranger is not there."""
    from bt_p2p.swarm.relay import RelayPlaces, reserve

    entry = public.addresses()[0]
    hidden = start(None, entry, relays=(parse_peer_address(entry),))
    asker = start(None, entry, is_client=True)

    with pytest.raises(PeerRefusedError, match="is no relay"):
        asker.loop.run(reserve(asker.p2p, hidden.peer_id), timeout_s=TIMEOUT_S)
    places = RelayPlaces(asker.p2p, [hidden.peer_id, STRANGER, public.peer_id])
    asker.loop.run(places.reserve_all(), timeout_s=TIMEOUT_S)
    assert (public.peer_id,) == places.held
    assert {hidden.peer_id, STRANGER} == set(places.problems)


def test_peers_join_over_ipv6(start) -> None:
    """Beside an IPv6 address at which nobody answers."""
    with socket.socket(socket.AF_INET6) as dead:
        try:
            dead.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no ::1")
        peer = start("/ip6/::1/tcp/0")
        joined = start(
            "/ip6/::1/tcp/0",
            f"/ip6/::1/tcp/{dead.getsockname()[1]}/p2p/{STRANGER}",
            peer.addresses()[0],
        )

    assert "/ip6/::1/tcp/" in peer.addresses()[0]
    assert "refused" in joined.unreachable[0]
    assert ("yes", 1) == (asked(joined).verdict, asked(joined).num_helpers)
