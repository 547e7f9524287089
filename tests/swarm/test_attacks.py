"""Attacks on the DHT by a peer of the swarm: honest leases are announced and read all the same."""

from __future__ import annotations

import math
import time

import pytest

from bt_p2p.protocol.keys import RUNS_KEY, block_key
from bt_p2p.protocol.lease import sign_lease
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from tests.swarm.waiting import wait_until

pytestmark = pytest.mark.swarm

WHOLE_DICTIONARY = "whole dictionary"
"""As a subkey: replace everything under the key."""
TEN_YEARS_S = 10 * 365 * 86400.0


async def _in_dht_attack(_dht, node, *, key, subkey, value, expires_at_s):
    """Send a record to every known peer; what each of them answered."""
    from hivemind.dht.protocol import DHTProtocol
    from hivemind.dht.routing import DHTID
    from hivemind.dht.storage import DictionaryDHTValue

    packed = DHTProtocol.serializer.dumps(value)
    if subkey is WHOLE_DICTIONARY:
        subkey, packed = None, DictionaryDHTValue()
        packed.store(value, DHTProtocol.serializer.dumps(value), expires_at_s)
    kept = []
    for peer_id in list(node.protocol.routing_table.peer_id_to_uid):
        accepted = await node.protocol.call_store(
            peer_id,
            [DHTID.generate(source=key)],
            [packed],
            [expires_at_s],
            subkeys=[subkey],
        )
        kept.append(None if accepted is None else accepted[0])
    return kept


@pytest.fixture
def swarm(local_peers):
    """Two honest peers, and what the third can do to them."""
    import functools

    from bt_p2p.swarm.bridge import call_in_dht
    from bt_p2p.swarm.directory import HivemindDirectory
    from tests.swarm.names import unique_name

    manifest = tiny_manifest(unique_name())
    *honest, hostile = local_peers
    for peer in honest:
        peer.swarm.protect_run(manifest)

    def send(key, subkey, value, *, ttl_s=30.0):
        call = functools.partial(
            _in_dht_attack,
            key=key,
            subkey=subkey,
            value=value,
            expires_at_s=time.time() + ttl_s,
        )
        return call_in_dht(hostile.swarm.dht, call, timeout_s=8, what="attacking")

    directories = [HivemindDirectory(peer.swarm.dht, peer.identity) for peer in honest]
    return manifest, honest, directories, send


@pytest.mark.timeout(90)
def test_no_attack_keeps_honest_leases_from_being_announced_and_read(swarm):
    """Squatting, foreign and endless records, garbage and oversize, one after another."""
    manifest, honest, directories, send = swarm

    def attack(key, subkey, value, *, ttl_s=30.0):
        assert [False, False] == send(key, subkey, value, ttl_s=ttl_s)

    key, victim = block_key(manifest.run_id, 0), honest[0].identity
    stranger = tiny_identity(7)
    now_s = time.time()
    valid = sign_lease(tiny_lease(manifest, stranger, 0, now_s=now_s), stranger)
    moved = sign_lease(tiny_lease(manifest, stranger, 1, now_s=now_s), stranger)

    attack(key, None, b"squat", ttl_s=TEN_YEARS_S)
    attack(key, None, b"squat", ttl_s=50)
    attack(key, valid.subkey, valid.value, ttl_s=TEN_YEARS_S)
    attack(key, valid.subkey, valid.value, ttl_s=math.inf)
    attack(key, victim.peer_id_bytes, valid.value)
    attack(key, moved.subkey, moved.value)
    attack(key, stranger.peer_id_bytes, b"unsigned")
    attack(key, stranger.peer_id_bytes, b"x" * 100_000)
    attack(key, WHOLE_DICTIONARY, b"squat")
    attack(RUNS_KEY, manifest.run_id, b"{}")
    attack(RUNS_KEY, None, b"squat", ttl_s=50)
    assert [True, True] == send(valid.key, valid.subkey, valid.value)  # honest records do pass

    lease = tiny_lease(manifest, victim, 0, now_s=time.time())
    directories[0].announce(lease)
    directories[0].publish(manifest)
    for directory in directories:
        wait_until(
            lambda directory=directory: lease in directory.read(manifest).leases, deadline_s=8
        )
        wait_until(
            lambda directory=directory: manifest == directory.runs().get(manifest.run_id),
            deadline_s=8,
        )
