"""What every `Directory` promises, in memory and over hivemind's DHT."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bt_p2p.clock import SystemClock
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.keys import RUNS_KEY, block_key
from bt_p2p.protocol.lease import Lease, sign_lease
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.testing.directory import InMemoryDirectory, SharedRecords
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest
from tests.swarm.waiting import wait_until


@dataclass(frozen=True, kw_only=True)
class Handles:
    """Three peers of one swarm, and what a stranger may do to it."""

    manifest: RunManifest
    directories: list[Directory]
    identities: list[PeerIdentity]
    store_raw: Callable[[str, bytes | str, bytes, float], object]
    """As a peer that keeps to no rules: key, subkey, value, expiry."""
    short_ttl_s: float
    """A lifetime long enough to be stored and seen."""

    def lease(self, index: int, block: int | None = 0, **changes: object) -> Lease:
        """A lease of one of the peers, issued now."""
        now_s = SystemClock().now_s()
        lease = tiny_lease(self.manifest, self.identities[index], block, now_s=now_s)
        return lease.model_copy(update=changes)

    def seen_by_all(self, expected: list[Lease]) -> None:
        """Wait until every handle reads exactly these leases."""
        in_order = tuple(sorted(expected, key=lambda lease: lease.peer_id))
        for directory in self.directories:
            read = functools.partial(directory.read, self.manifest)
            wait_until(lambda read=read: in_order == read().leases, deadline_s=5)


@pytest.fixture(params=["memory", pytest.param("hivemind", marks=pytest.mark.swarm)])
def handles(request) -> Handles:
    """Three handles on one swarm that has never seen this run."""
    manifest = tiny_manifest(f"t{uuid.uuid4().hex[:10]}")
    if request.param == "memory":
        records = SharedRecords(SystemClock())
        identities = [tiny_identity(index) for index in range(3)]
        return Handles(
            manifest=manifest,
            directories=[InMemoryDirectory(records, identity) for identity in identities],
            identities=identities,
            store_raw=records.store,
            short_ttl_s=0.1,
        )
    from bt_p2p.swarm.bridge import call_in_dht
    from bt_p2p.swarm.directory import HivemindDirectory, _in_dht_store

    peers = request.getfixturevalue("hivemind_peers")
    for peer in peers:
        peer.swarm.protect_run(manifest)

    def store_raw(key: str, subkey: bytes | str, value: bytes, expires_at_s: float) -> None:
        store = functools.partial(
            _in_dht_store, key=key, subkey=subkey, value=value, expires_at_s=expires_at_s
        )
        call_in_dht(peers[0].swarm.dht, store, timeout_s=5, what="storing")

    return Handles(
        manifest=manifest,
        directories=[HivemindDirectory(peer.swarm.dht, peer.identity) for peer in peers],
        identities=[peer.identity for peer in peers],
        store_raw=store_raw,
        short_ttl_s=1.0,
    )


def test_all_peers_read_what_each_announced(handles):
    """Leases of blocks and of a peer still choosing, through every handle."""
    leases = [handles.lease(0, 0), handles.lease(1, 2), handles.lease(2, None)]
    for directory, lease in zip(handles.directories, leases, strict=True):
        directory.announce(lease)
    handles.seen_by_all(leases)
    view = handles.directories[0].read(handles.manifest)
    assert ((leases[1],), (leases[2],)) == (view.of_block(2), view.joining)
    assert 0 == view.num_invalid


def test_a_newer_lease_replaces_the_one_before_it(handles):
    """A renewal with other facts is what everybody reads from then on."""
    first = handles.lease(0)
    renewed = first.model_copy(
        update={
            "round_index": 7,
            "issued_at_s": first.issued_at_s + 1,
            "expires_at_s": first.expires_at_s + 1,
        }
    )
    handles.directories[0].announce(first)
    handles.directories[0].announce(renewed)
    handles.seen_by_all([renewed])


def test_a_peer_that_moved_is_read_on_its_new_block_only(handles):
    """The older lease still stands under the old block's key, but does not count."""
    old = handles.lease(1, 0)
    new = handles.lease(1, 1, issued_at_s=old.issued_at_s + 1, expires_at_s=old.expires_at_s + 1)
    handles.directories[1].announce(old)
    handles.directories[1].announce(new)
    handles.seen_by_all([new])


def test_a_withdrawn_lease_is_void_at_once(handles):
    """Long before it would have expired."""
    lease = handles.lease(0)
    handles.directories[0].announce(lease)
    handles.seen_by_all([lease])
    handles.directories[0].withdraw(lease)
    handles.seen_by_all([])


def test_a_withdrawn_peer_can_come_back(handles):
    """A restart within the old lease's life is seen after its first renewal at the latest."""
    lease = handles.lease(0)
    handles.directories[0].announce(lease)
    handles.directories[0].withdraw(lease)
    renewed = handles.lease(0, 1, boot_id="again")
    handles.directories[0].announce(renewed)
    handles.seen_by_all([renewed])


def test_a_lease_that_is_not_renewed_expires(handles):
    """A dead peer is gone from every view without anybody's doing."""
    now_s = SystemClock().now_s()
    lease = handles.lease(0, expires_at_s=now_s + handles.short_ttl_s)
    handles.directories[0].announce(lease)
    handles.seen_by_all([])


def test_runs_do_not_share_leases(handles):
    """Another run in the same swarm sees nothing of this one."""
    handles.directories[0].announce(handles.lease(0))
    other = tiny_manifest(handles.manifest.name, seed=1)
    assert () == handles.directories[1].read(other).leases


def test_a_strangers_garbage_hides_no_lease(handles):
    """Unsigned, foreign and moved records stand beside a good lease, which is still read."""
    good, foreign = handles.lease(0), handles.lease(1)
    handles.directories[0].announce(good)
    key, expires_at_s = block_key(handles.manifest.run_id, 0), good.expires_at_s + 20
    moved = sign_lease(handles.lease(1, 2), handles.identities[1])
    signed_by_other = sign_lease(foreign, handles.identities[2])
    handles.store_raw(key, b"nobody", b"garbage", expires_at_s)
    handles.store_raw(key, handles.identities[1].peer_id_bytes, moved.value, expires_at_s)
    handles.store_raw(key, handles.identities[2].peer_id_bytes, signed_by_other.value, expires_at_s)
    handles.seen_by_all([good])


def test_published_manifests_are_found_by_their_id(handles):
    """Through every handle, equal to what was published."""
    handles.directories[0].publish(handles.manifest)
    for directory in handles.directories:
        found = wait_until(
            lambda directory=directory: directory.runs().get(handles.manifest.run_id), deadline_s=5
        )
        assert handles.manifest == found


def test_a_fake_manifest_is_not_found(handles):
    """Another manifest under a run id, and bytes that are none, are left out."""
    fake_id = tiny_manifest(handles.manifest.name, seed=2).run_id
    expires_at_s = SystemClock().now_s() + 60
    handles.store_raw(RUNS_KEY, fake_id, handles.manifest.canonical_bytes(), expires_at_s)
    handles.store_raw(RUNS_KEY, f"{fake_id}x", b"{}", expires_at_s)
    handles.directories[0].publish(handles.manifest)
    found = wait_until(
        lambda: (
            (
                runs := handles.directories[1].runs(),
                handles.manifest.run_id in runs,
            )[1]
            and runs
        ),
        deadline_s=5,
    )
    assert [] == [run_id for run_id in found if run_id.startswith(fake_id)]


def test_a_reader_without_a_key_cannot_announce(handles):
    """Our own mistake, so a plain RuntimeError."""
    directory = handles.directories[0]
    reader = type(directory)(getattr(directory, "_dht", None) or directory._records)
    with pytest.raises(RuntimeError, match="without an identity"):
        reader.announce(handles.lease(0))
