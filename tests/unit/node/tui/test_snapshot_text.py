"""One snapshot as text and as JSON."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from bt_p2p.protocol.lease import BlockCopy
from node.tui.snapshot_text import status_document, status_text

SCHEMA = Path(__file__).parents[4] / "docs" / "reference" / "status-json.md"
SECTIONS = {
    "The swarm": "swarm",
    "A block": "block",
    "A holder": "holder",
    "A copy": "copy",
    "The node on this machine": "node",
    "A reason": "reason",
    "A contribution": "contribution",
}
ROW = re.compile(r"\| `(?P<key>\w+)` \| (?P<type>[a-z ]+) \|")
JSON_TYPES = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def documented():
    """Object name -> key -> type, as the reference page says."""
    schema = {}
    for section in re.split(r"^## ", SCHEMA.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        schema[SECTIONS[title]] = {match["key"]: match["type"] for match in ROW.finditer(body)}
    return schema


def check(value, type_words, schema):
    """Assert that a value has one of the documented types, all the way down."""
    if type_words.startswith("array of "):
        assert isinstance(value, list)
        for item in value:
            check(item, type_words.removeprefix("array of "), schema)
        return
    words = type_words.split(" or ")
    if isinstance(value, dict):
        (name,) = set(words) & set(schema)
        assert list(schema[name]) == list(value)
        for key, inner in value.items():
            check(inner, schema[name][key], schema)
        return
    assert any(isinstance(value, JSON_TYPES[word]) for word in words if word in JSON_TYPES), (
        f"{value!r} is not {type_words}"
    )


def test_document_is_as_documented(swarm, lease, node, now_s):
    """Every key on the reference page is there, in its order and type, and no other."""
    overview = swarm(
        [
            lease(1, 0, copies=[BlockCopy(block=1, round_index=3)]),
            lease(2, 1, loss=None),
            lease(3, None),
        ],
        num_invalid=2,
    )
    schema = documented()
    assert set(SECTIONS.values()) == set(schema)
    check(status_document(overview, node(), now_s), "swarm", schema)


def test_document_without_answers_keeps_its_keys(now_s):
    """Without a swarm or a node the keys stay, and their values are empty."""
    document = status_document(None, None, now_s)
    check(document, "swarm", documented())
    assert (None, None, [], now_s) == tuple(
        document[key] for key in ("run_id", "node", "blocks", "taken_at_s")
    )


def test_document_tells_the_facts(swarm, lease, now_s):
    """Counts, holes and ages are those of the leases."""
    overview = swarm([lease(1, 0, age_s=4.0), lease(2, None)], num_blocks=2, num_invalid=3)
    document = status_document(overview, None, now_s)
    assert (2, [1], 3, 1) == (
        document["peers"],
        document["uncovered"],
        document["invalid_records"],
        len(document["joining"]),
    )
    assert [
        {
            "peer_id": "12D3KooWpeer000001",
            "state": "training",
            "is_paused": False,
            "round": 12,
            "copies": [],
            "loss": 2.104,
            "bytes_per_s": 3200.0,
            "partners": 1,
            "is_relayed": False,
            "age_s": 4.0,
            "expires_in_s": 26.0,
        }
    ] == document["blocks"][0]["holders"]


def test_document_is_strict_json(healthy, node, now_s):
    """What is not a number becomes null."""
    broken = node(loss=math.nan, loss_history=[2.0, math.inf], round_ends_at_s=math.inf)
    document = json.loads(json.dumps(status_document(healthy, broken, now_s), allow_nan=False))
    assert (None, [2.0, None], None) == tuple(
        document["node"][key] for key in ("loss_nats_per_byte", "loss_history", "round_ends_in_s")
    )


def test_text_of_a_troubled_swarm(swarm, lease, node, now_s, snapshot):
    """The text has all that the dashboard has, and full addresses."""
    leases = [lease(1, 0), lease(3, 1, age_s=27.0), lease(7, None)]
    overview = swarm(leases, num_blocks=4, num_invalid=3)
    peers = ["/ip4/203.0.113.7/tcp/31337/p2p/12D3KooWpeer000001"]
    assert snapshot == status_text(overview, node(), now_s, 80, initial_peers=peers)


def test_text_of_a_healthy_swarm(healthy, node, now_s, snapshot):
    """What a pipe gets."""
    assert snapshot == status_text(healthy, node(), now_s, 80)


def test_text_without_an_answer(node, now_s, snapshot):
    """A swarm that does not answer is a warning."""
    assert snapshot == status_text(None, node(addresses=[], warnings=["training alone"]), now_s, 80)


@pytest.mark.parametrize("width", [0, 40, 80, 500])
def test_text_is_never_cut(swarm, lease, node, now_s, width):
    """All holders are listed in full, whatever the width."""
    overview = swarm([lease(number, number % 3) for number in range(200)])
    text = status_text(overview, node(state_dir="/long" * 50), now_s, width)
    assert 200 == text.count("training    ")
    assert "/long" * 50 in text
    assert "more" not in text


def test_text_has_no_escape_codes(swarm, lease, node, now_s):
    """Strangers' strings cannot reach the terminal behind a pipe; lines end in newlines only."""
    hostile = "\x1b[2J\x07\r\n[bold]x[/]"
    overview = swarm([lease(1, 0, peer_id=hostile)])
    text = status_text(overview, node(last_outcome=hostile, warnings=[hostile]), now_s, 80)
    assert set() == {char for char in text if ord(char) < 32} - {"\n"}
    assert "[bold]x[/]" in text


def test_text_can_be_ascii(swarm, lease, node, now_s):
    """For an ASCII locale every character is ASCII."""
    overview = swarm([lease(1, 0), lease(2, None)])
    accented = node(state_dir="/home/andr\u00e9", last_outcome="dropped: … too far")
    text = status_text(overview, accented, now_s, 80, ascii_only=True)
    assert text.isascii()
    assert "/home/andr?" in text


def test_reachability_is_shown_once_it_is_known(node, now_s):
    """With what to do about it."""
    silent = status_text(None, node(), now_s, 80)
    told = status_text(None, node(reachable="no", reachable_detail="open TCP port 7"), now_s, 80)
    assert "reach    no: open TCP port 7" in told
    assert "reach " not in silent
