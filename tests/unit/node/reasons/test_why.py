"""What `bt-node why` says, in words and for programs."""

from __future__ import annotations

import json
import os

from bt_p2p.clock import SystemClock
from node.commands.why import show_why
from node.reasons.code import ReasonCode
from node.record import NodeRecord
from node.snapshot import NodeSnapshot


def start_node(folder, **values) -> NodeRecord:
    """What a node that runs here, as this process, has written."""
    now_s = SystemClock().now_s()
    fields = {"state": "averaging", "block": 2, "rounds_averaged": 1, "updated_at_s": now_s}
    fields |= {"last_outcome": "averaged with 1 replica"} | values
    snapshot = NodeSnapshot(pid=os.getpid(), peer_id="me", run_id="run", **fields)
    record = NodeRecord(folder, snapshot, SystemClock())
    record.write()
    return record


def test_one_line_where_no_node_runs(tmp_path, capsys) -> None:
    """That is an answer, not a failure."""
    assert 0 == show_why(as_json=False, state_path=tmp_path)
    text = capsys.readouterr().out
    assert f"no node runs here (state folder {tmp_path}); start one with: bt-node join\n" == text


def test_one_line_where_all_is_well(tmp_path, capsys) -> None:
    """A node that averages has no reasons."""
    start_node(tmp_path)
    assert 0 == show_why(as_json=False, state_path=tmp_path)
    assert "all is well: averaging block 2, averaged with 1 replica\n" == capsys.readouterr().out


def test_each_reason_has_code_evidence_meaning_and_advice(tmp_path, capsys) -> None:
    """And strangers' words cannot control the terminal."""
    record = start_node(tmp_path)
    record.note(ReasonCode.PARTNER_REFUSED, "\x1b[2J…abc: sent malformed weights")
    record.write()
    assert 0 == show_why(as_json=False, state_path=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("warning partner-refused: a peer is not averaged with, for ")
    assert ["evidence", "meaning", "next"] == [
        line.strip().partition(":")[0] for line in lines[1:] if line[:3] != "   "
    ]
    assert "[2J…abc: sent malformed weights" in lines[1]
    assert not any("\x1b" in line for line in lines)


def test_the_document_is_the_same_for_programs(tmp_path, capsys) -> None:
    """With and without a node it has the same keys."""
    assert 0 == show_why(as_json=True, state_path=tmp_path)
    nobody = json.loads(capsys.readouterr().out)
    assert (False, None, []) == (nobody["is_running"], nobody["state"], nobody["reasons"])
    start_node(tmp_path, state="syncing", sync="12 %")
    assert 0 == show_why(as_json=True, state_path=tmp_path)
    found = json.loads(capsys.readouterr().out)
    assert list(nobody) == list(found)
    [reason] = found["reasons"]
    assert ("waiting-for-weights", "note") == (reason["code"], reason["severity"])
    assert "12 % (block 2)" == reason["evidence"]
