"""Real peers, in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Forks peers that may be killed."""
    from tests.swarm import peer_processes

    with peer_processes.nursery(tmp_path_factory.mktemp("n")) as found:
        yield found


@pytest.fixture(scope="session")
def keys_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where peers keep their key files."""
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
def processes(nursery, keys_folder) -> Iterator:
    """Call it for a peer that has joined the others of this test; all end with the test."""
    peers: list = []

    def start():
        peer = nursery.peer()
        initial = peers[0].addresses if peers else []
        found = peer.ask("join", initial_peers=initial, folder=str(keys_folder))
        peer.addresses, peer.peer_id = found["addresses"], found["peer_id"]
        peers.append(peer)
        return peer

    yield start
    for peer in peers:
        peer.end()


@pytest.fixture(scope="session")
def local_peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list]:
    """Three peers in this process that know each other."""
    from tests.swarm.local_peers import local_swarm

    with local_swarm(tmp_path_factory.mktemp("peers"), 3) as peers:
        yield peers
