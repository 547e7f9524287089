"""Two looks -> the events between them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.protocol.lease import Lease, LeaseView
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.tiny import tiny_manifest
from node.events.changes import MAX_PEERS, node_events, peer_events, reason_events, swarm_seen
from node.events.event import EVENTS, Event
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.record import NodeRecord
from node.snapshot import NodeSnapshot

MANIFEST = tiny_manifest()
BEFORE = NodeSnapshot(pid=1, peer_id="me", run_id=MANIFEST.run_id, state="training", block=0)


def kinds(events: list[Event]) -> list[str]:
    """Their names."""
    return [event.kind for event in events]


def after(**changes: Any) -> list[Event]:
    """Events of a change of the snapshot."""
    return node_events(BEFORE, BEFORE.model_copy(update=changes), at_s=5.0)


def lease(peer_id: str, block: int | None, **values: Any) -> Lease:
    """A live lease."""
    fields = {
        "run_id": MANIFEST.run_id,
        "peer_id": peer_id,
        "boot_id": "boot",
        "block": block,
        "state": "joining" if block is None else "training",
        "issued_at_s": 0.0,
        "expires_at_s": 30.0,
    }
    return Lease(**fields | values)


def overview(*leases: Lease) -> SwarmOverview:
    """A view of these."""
    return make_overview(MANIFEST, LeaseView(leases=leases, num_invalid=0), now_s=1.0)


def test_a_round_is_told_with_its_outcome():
    """Averaged, alone or refused; an average has an event of its own."""
    common = {"round_index": 1, "loss_history": [2.5]}
    made = after(**common, rounds_averaged=1, last_partners=2, last_outcome="averaged with 2")
    assert ["round_finished", "average_made"] == kinds(made)
    assert (1, 2.5, 2, "averaged") == (
        made[0].round, made[0].loss, made[0].partners, made[0].outcome,
    )  # fmt: skip
    assert ["round_finished"] == kinds(after(**common, rounds_alone=1))
    refused = after(
        **common,
        rounds_failed=1,
        last_outcome="dropped: worse",
        last_code=ReasonCode.AVERAGE_REFUSED,
    )
    assert ["round_finished", "average_refused"] == kinds(refused)
    assert ("average-refused", "dropped: worse") == (refused[1].code, refused[1].words)


def test_a_round_without_a_good_step_has_no_loss():
    """JSON has no NaN."""
    (event,) = after(rounds_alone=1, loss_history=[float("nan")])
    assert event.loss is None


@given(
    loss=st.floats(),
    bytes_per_s=st.floats(),
    after_s=st.floats(),
    words=st.text(max_size=3000),
)
def test_no_measurement_ends_a_node(loss, bytes_per_s, after_s, words):
    """However odd it is, it makes an event that can be written and read."""
    events = after(
        rounds_averaged=1,
        loss_history=[loss],
        bytes_per_s=bytes_per_s,
        first_average_s=after_s,
        last_outcome=words,
    )
    assert events == [EVENTS.validate_json(event.model_dump_json()) for event in events]


def test_training_and_averaging_in_turns_are_no_events():
    """Other states are."""
    assert [] == after(state="averaging")
    assert ["state_changed"] == kinds(after(state="syncing"))


def test_a_pause_and_its_end_are_told():
    """With kinds of their own."""
    paused = BEFORE.model_copy(
        update={"state": "paused", "pause_reason": "user", "pause_words": "you asked for it"}
    )
    (event,) = node_events(BEFORE, paused, at_s=1.0)
    assert ("paused", "user", "you asked for it") == (event.kind, event.reason, event.words)
    assert ["resumed", "state_changed"] == kinds(node_events(paused, BEFORE, at_s=1.0))


def test_reasons_are_told_as_they_come_and_go():
    """By their codes, once each."""
    low = Reason(code=ReasonCode.DISK_LOW, evidence="3 MiB free")
    clock = Reason(code=ReasonCode.CLOCK_OFF, evidence="an hour ahead")
    before = {low.code: low}
    after = {low.code: low.model_copy(update={"evidence": "2 MiB free"}), clock.code: clock}
    (began,) = reason_events(before, after, at_s=1.0)
    assert ("reason_began", "clock-off", "warning", "an hour ahead") == (
        began.kind, began.code, began.severity, began.words,
    )  # fmt: skip
    assert [("reason_over", "clock-off")] == [
        (event.kind, event.code) for event in reason_events(after, before, at_s=2.0)
    ]


def test_peers_that_come_move_and_go_are_told_but_not_this_node():
    """Each once."""
    first = overview(lease("me", 0), lease("ada", None), lease("bob", 1))
    second = overview(lease("me", 1), lease("ada", 1), lease("cyd", 0))
    assert ["peer_joined", "peer_joined"] == kinds(peer_events(None, first, mine="me", at_s=1.0))
    assert [("peer_joined", "cyd"), ("peer_moved", "ada"), ("peer_left", "bob")] == [
        (event.kind, event.peer_id) for event in peer_events(first, second, mine="me", at_s=1.0)
    ]


def test_a_large_swarm_is_told_with_this_node_and_a_holder_of_each_block():
    """And with the number of all."""
    crowd = [lease(f"peer{number:04d}", 0) for number in range(200)]
    event = swarm_seen(overview(*crowd, lease("zoe", 1), lease("zzz", 0)), mine="zzz", at_s=1.0)
    assert (202, MAX_PEERS, "zzz") == (event.num_peers, len(event.peers), event.peers[0].peer_id)
    assert {0, 1} == {peer.block for peer in event.peers}


def test_a_record_tells_its_changes(tmp_path):
    """Whatever is shown is in the log as well."""
    told: list[Event] = []
    record = NodeRecord(tmp_path, BEFORE, ManualClock(7.0), tell=told.append)
    record.add_loss(2.0)
    record.update(rounds_alone=1)
    record.update(state="leaving")
    assert ["round_finished", "state_changed"] == kinds(told)
    assert 7.0 == told[0].at_s
