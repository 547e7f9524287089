"""A peer starts, joins and ends without leaving anything, however it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from bt_p2p.errors import BootstrapError, ConfigError, SwarmError
from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.protocol.identity import PeerIdentity

pytestmark = pytest.mark.swarm

END_TIMEOUT_S = 8.0
STRANGER = PeerIdentity.generate().peer_id


@pytest.fixture
def start():
    """Starts peers on loopback that end with the test."""
    from bt_p2p.swarm.process import PeerOptions, start_peer

    peers = []

    def start_one(*initial: str):
        options = PeerOptions(
            initial_peers=tuple(parse_peer_addresses(initial)), listen=("/ip4/127.0.0.1/tcp/0",)
        )
        peers.append(start_peer(options))
        return peers[-1]

    yield start_one
    for peer in peers:
        peer.stop()


def test_stopping_leaves_no_process_socket_or_port(start) -> None:
    """And stopping twice is as good as once."""
    before = set(psutil.Process().children(recursive=True))
    peer = start()
    own = set(psutil.Process().children(recursive=True)) - before
    port = int(peer.addresses()[0].split("/")[4])
    folder = peer._socket_folder
    daemons = [child for child in own if child.name() == "p2pd"]
    assert 1 == len(daemons)
    assert folder.exists()

    peer.stop()
    peer.stop()

    _, alive = psutil.wait_procs(daemons, timeout=END_TIMEOUT_S)
    assert [] == alive
    assert not peer.dht.is_alive()
    assert not folder.exists()
    from bt_p2p.swarm.listen import check_port_is_free

    check_port_is_free("127.0.0.1", port)


def test_children_end_when_the_node_is_killed(processes) -> None:
    """SIGKILL of the main process alone takes the DHT and the daemon with it."""
    from tests.swarm.peer_processes import wait_gone

    peer = processes()
    tree = peer.tree()
    assert len(tree) >= 3

    os.kill(peer.pid, signal.SIGKILL)

    wait_gone(tree, deadline_s=END_TIMEOUT_S)


def test_every_unreachable_address_is_named_with_its_own_reason(start) -> None:
    """A closed port is told from an unknown host."""
    with pytest.raises(BootstrapError) as caught:
        start(
            f"/ip4/127.0.0.1/tcp/1/p2p/{STRANGER}",
            f"/dns4/nope.invalid/tcp/31337/p2p/{STRANGER}",
        )

    assert "tcp/1/p2p" in str(caught.value)
    assert "refused" in str(caught.value)
    assert "no such host" in str(caught.value)


def test_another_peer_at_the_address_is_told(start) -> None:
    """The right place, but not who was expected there."""
    address = start().addresses()[0]
    impostor = address.rsplit("/", 1)[0] + f"/{STRANGER}"

    with pytest.raises(BootstrapError, match="another peer answers there"):
        start(impostor)


def test_one_good_address_is_enough(start) -> None:
    """The dead one is reported."""
    from bt_p2p.swarm.neighbours import neighbours

    first = start()

    joined = start(first.addresses()[0], f"/ip4/127.0.0.1/tcp/1/p2p/{STRANGER}")

    assert {first.peer_id} == neighbours(joined)
    assert 1 == len(joined.unreachable)
    assert "refused" in joined.unreachable[0]


def test_identity_survives_a_restart(tmp_path: Path) -> None:
    """The peer id is the one of the key file."""
    from bt_p2p.swarm.process import PeerOptions, start_peer

    identity = PeerIdentity.generate()
    identity.save(tmp_path / "identity.key")
    options = PeerOptions(identity_path=tmp_path / "identity.key", listen=("/ip4/127.0.0.1/tcp/0",))
    for _ in range(2):
        peer = start_peer(options)
        peer.stop()
        assert identity.peer_id == peer.peer_id


def test_a_port_in_use_is_found_before_the_daemon_starts(start) -> None:
    """hivemind itself would share it silently."""
    from bt_p2p.swarm.listen import check_port_is_free

    port = int(start().addresses()[0].split("/")[4])

    with pytest.raises(ConfigError, match=f"port {port} is in use"):
        check_port_is_free("127.0.0.1", port)


def test_a_host_that_is_no_address_is_refused() -> None:
    """Names cannot be listened on."""
    from bt_p2p.swarm.listen import listen_address

    assert "/ip6/::1/tcp/7" == listen_address("::1", 7)
    with pytest.raises(ConfigError, match="not an IP address"):
        listen_address("localhost", 7)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["older first", "newer first"])
def test_peers_that_stop_leave_another_one_of_the_process_its_sockets(start, order) -> None:
    """Averagers that the other starts later listen where its folder is, not where there is none."""
    from hivemind.p2p import P2P

    peers = [start()]
    before = P2P._UNIX_SOCKET_PREFIX
    peers += [start(), start()]
    assert before != P2P._UNIX_SOCKET_PREFIX
    for index in order:
        peers[index].stop()
    assert before == P2P._UNIX_SOCKET_PREFIX
    assert Path(before.removeprefix("/unix")).is_dir()


def test_a_peer_that_cannot_start_leaves_another_one_its_sockets(start) -> None:
    """No interface of this machine has its address."""
    from hivemind.p2p import P2P

    from bt_p2p.swarm.process import PeerOptions, start_peer

    start()
    before = P2P._UNIX_SOCKET_PREFIX
    with pytest.raises(SwarmError):
        start_peer(PeerOptions(listen=("/ip4/203.0.113.1/tcp/0",)))
    assert before == P2P._UNIX_SOCKET_PREFIX
