"""bt_p2p.protocol.membership: who may hold blocks of a closed run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_p2p.errors import ConfigError, ProtocolError, RecordRejectedError, WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.lease import read_leases, sign_lease
from bt_p2p.protocol.limits import MAX_CLOCK_SKEW_S, MAX_MEMBERSHIP_SIZE_BYTES
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.membership import (
    check_membership,
    issue_membership,
    membership_expires_at_s,
    membership_of,
    token_of,
)
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest

OWNER, MEMBER, STRANGER = tiny_identity(1), tiny_identity(2), tiny_identity(3)
OPEN = tiny_manifest()
CLOSED = OPEN.model_copy(update={"owner": OWNER.peer_id})
EXPIRES_AT_S = int(START_S) + 100


def issue(*, owner=OWNER, run_id=CLOSED.run_id, peer_id=MEMBER.peer_id) -> bytes:
    """A membership until `EXPIRES_AT_S`."""
    return issue_membership(owner, run_id=run_id, peer_id=peer_id, expires_at_s=EXPIRES_AT_S)


def test_an_owner_makes_another_run_and_no_owner_leaves_ids_as_they_were() -> None:
    """Runs that were founded before there were owners keep their id."""
    assert CLOSED.run_id != OPEN.run_id
    assert b"owner" not in OPEN.canonical_bytes()
    for manifest in (OPEN, CLOSED):
        data = manifest.canonical_bytes()
        assert manifest == RunManifest.from_untrusted_bytes(data, run_id=manifest.run_id)


@pytest.mark.parametrize("owner", ["x", "Qm" + "1" * 44, OWNER.peer_id + " ", OWNER.peer_id[:-1]])
def test_an_owner_is_an_id_with_a_key_in_it(owner: str) -> None:
    """Or nobody could check what it signs."""
    with pytest.raises(ConfigError, match="owner"):
        RunManifest.build({"owner": owner})


def test_a_member_is_accepted_until_it_expires() -> None:
    """Clocks may differ a little."""
    last_s = EXPIRES_AT_S + MAX_CLOCK_SKEW_S
    check_membership(CLOSED, MEMBER.peer_id, issue(), now_s=last_s - 0.1)
    with pytest.raises(RecordRejectedError, match="has expired 5 s ago"):
        check_membership(CLOSED, MEMBER.peer_id, issue(), now_s=last_s)
    assert EXPIRES_AT_S == membership_expires_at_s(issue())


def test_the_expiry_of_garbage_is_malformed() -> None:
    """It is read from what was checked before, but says so if it was not."""
    with pytest.raises(WireFormatError):
        membership_expires_at_s(wire.pack(["soon", b""]))


@pytest.mark.parametrize(
    "shown",
    [
        issue(peer_id=STRANGER.peer_id),
        issue(run_id=OPEN.run_id),
        issue(owner=STRANGER),
        wire.pack([EXPIRES_AT_S + 1, wire.unpack(issue(), max_size_bytes=99)[1]]),
        wire.pack([EXPIRES_AT_S, b""]),
    ],
)
def test_what_the_owner_has_not_signed_for_this_peer_and_run_is_refused(shown: bytes) -> None:
    """Another peer, another run, another owner, another expiry, no signature."""
    with pytest.raises(RecordRejectedError, match="not signed for peer"):
        check_membership(CLOSED, MEMBER.peer_id, shown, now_s=START_S)


def test_nothing_is_refused_in_a_closed_run_and_anything_accepted_in_an_open_one() -> None:
    """Open runs ask for nothing."""
    with pytest.raises(RecordRejectedError, match="is closed, and no membership is shown"):
        check_membership(CLOSED, MEMBER.peer_id, None, now_s=START_S)
    check_membership(OPEN, MEMBER.peer_id, None, now_s=START_S)
    check_membership(OPEN, MEMBER.peer_id, b"garbage", now_s=START_S)


@given(
    st.binary(max_size=200)
    | st.text()
    | st.lists(st.integers(-(2**63), 2**63) | st.binary(), max_size=3).map(wire.pack)
)
@settings(derandomize=True, deadline=None, database=None)
def test_garbage_is_refused_with_a_protocol_error(shown: object) -> None:
    """Whatever its type is."""
    with pytest.raises(ProtocolError):
        check_membership(CLOSED, MEMBER.peer_id, shown, now_s=START_S)


def test_tokens_are_words_that_hold_a_membership() -> None:
    """With spaces around them, as people paste them."""
    token = token_of(issue())
    assert len(token.split()) == 1
    assert issue() == membership_of(f" {token}\n")


@pytest.mark.parametrize("token", ["", "?", "ä", "a", "A" * 4 * MAX_MEMBERSHIP_SIZE_BYTES])
def test_what_is_no_token_is_refused(token: str) -> None:
    """In words."""
    with pytest.raises(ConfigError, match="copy all of it"):
        membership_of(token)


def test_only_leases_of_members_count_in_a_closed_run() -> None:
    """For everybody: who averages, who downloads and who generates."""

    def stored(identity, membership):
        lease = tiny_lease(CLOSED, identity).model_copy(update={"membership": membership})
        signed = sign_lease(lease, identity)
        return lease, (signed.key, {signed.subkey: signed.value})

    member, member_record = stored(MEMBER, issue())
    records = [member_record, stored(STRANGER, None)[1], stored(tiny_identity(4), issue())[1]]

    view = read_leases(records, now_s=START_S, manifest=CLOSED)

    assert ((member,), 2) == (view.leases, view.num_invalid)
    later_s = EXPIRES_AT_S + MAX_CLOCK_SKEW_S
    assert () == read_leases(records, now_s=later_s, manifest=CLOSED).leases


def test_a_membership_of_the_wrong_type_is_malformed() -> None:
    """Not merely refused."""
    with pytest.raises(WireFormatError, match="not str"):
        check_membership(CLOSED, MEMBER.peer_id, "text", now_s=START_S)
