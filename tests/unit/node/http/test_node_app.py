"""What a node tells: figures that are documented, and health that depends on silence alone."""

from __future__ import annotations

import math
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from bt_p2p.testing.clock import START_S, ManualClock
from node.http.node_app import make_node_app
from node.http.node_health import node_health
from node.snapshot import NodeSnapshot

PAGES = Path(__file__).parents[4] / "docs" / "reference"
SNAPSHOT = NodeSnapshot(
    pid=7, peer_id="12D3KooWabcdef", run_id="run-x", state="training", block=2, round_index=9,
    loss=math.nan, rounds_averaged=3, rounds_alone=1, steps=5, updated_at_s=START_S,
)  # fmt: skip


def figures(text: str) -> dict[str, float]:
    """Sample -> value."""
    return {
        sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_figures_are_those_of_the_snapshot() -> None:
    """A counter, a state, an index; nothing for what is not known or not finite."""
    client = TestClient(make_node_app(lambda: SNAPSHOT, ManualClock()))
    answer = client.get("/metrics")
    assert "text/plain; version=0.0.4; charset=utf-8" == answer.headers["content-type"]
    found = figures(answer.text)
    assert 3 == found["bt_node_rounds_total,outcome=averaged"]
    assert (1, 0) == (found["bt_node_state,state=training"], found["bt_node_state,state=leaving"])
    assert (2, 9, 5) == tuple(
        found[f"bt_node_{name}"] for name in ("block", "round", "steps_total")
    )
    assert 1 == found["bt_node_reachable,how=unknown"]
    assert "bt_node_loss_nats_per_byte" not in found
    assert "bt_node_first_average_seconds" not in found


def test_figures_are_those_of_the_page() -> None:
    """Names, types and labels."""
    page = (PAGES / "metrics.md").read_text(encoding="utf-8").split("\n## A node\n")[1]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, flags=re.MULTILINE)
    text = TestClient(make_node_app(lambda: SNAPSHOT, ManualClock())).get("/metrics").text
    assert rows == re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.MULTILINE)


def test_a_silent_node_is_not_well() -> None:
    """After half a minute; the status code says so too, and so does a figure."""
    clock = ManualClock()
    client = TestClient(make_node_app(lambda: SNAPSHOT, clock))
    silent = "bt_node_reason,code=silent,severity=error"
    fresh = client.get("/healthz")
    assert (200, "ok") == (fresh.status_code, fresh.json()["status"])
    assert 0 == figures(client.get("/metrics").text)[silent]
    clock.advance(31)
    later = client.get("/healthz")
    assert (503, "failing") == (later.status_code, later.json()["status"])
    assert "silent" in [reason["code"] for reason in later.json()["reasons"]]
    assert 1 == figures(client.get("/metrics").text)[silent]


def test_the_document_of_health_is_described() -> None:
    """Every key, and no other."""
    page = (PAGES / "http-api.md").read_text(encoding="utf-8")
    section = page.split("## `/healthz` of a node\n")[1].split("\n## ")[0]
    keys = set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
    assert keys == set(node_health(SNAPSHOT, now_s=START_S))
