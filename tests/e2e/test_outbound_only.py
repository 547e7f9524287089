"""Volunteers that nobody can dial take part all the same, through a peer that can be dialled.

Each runs in a network namespace of its own, from which a cable leads to the hub alone. One knows
that it is hidden; the other listens where nobody reaches it, and finds out by being dialled back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from node.snapshot import read_snapshot
from tests.e2e.conftest import Programs, wait_until, write_tiny_manifest
from tests.e2e.namespaces import Archipelago, archipelago

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

JOIN_TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def sea() -> Iterator[Archipelago]:
    """A hub and two islands."""
    with archipelago(2) as found:
        yield found


def test_hidden_nodes_average_and_serve_through_a_public_one(
    programs: Programs, sea: Archipelago
) -> None:
    """They know each other by peer id alone: no route leads from one to the other."""
    model = {
        "num_blocks": 1, "layers_per_block": 1, "d_model": 32, "num_heads": 2, "context": 64,
    }  # fmt: skip
    write_tiny_manifest(programs.folder / "manifest.json", model=model)
    programs.start(
        "bootstrap", "--manifest", "manifest.json", "--port", "31337", log="hub.log",
        namespace=sea.hub,
    )  # fmt: skip
    wait_until(
        lambda: sea.islands[1].hub_address in programs.text("hub.log"),
        deadline_s=60,
        what="the hub listens",
    )
    peer_id = programs.text("hub.log").split()[1]
    entries = [f"/ip4/{island.hub_address}/tcp/31337/p2p/{peer_id}" for island in sea.islands]
    hidden = {
        "knows": ("--outbound-only",),
        "finds-out": (
            "--host", "127.0.0.1", "--port", "4001",
            "--announce", f"/ip4/{sea.islands[1].address}/tcp/4001",
        ),
    }  # fmt: skip
    for island, entry, (name, options) in zip(sea.islands, entries, hidden.items(), strict=True):
        programs.start(
            "node", "join", "--initial-peers", entry, "--state-dir", name, "--threads", "1",
            *options, log=f"{name}.log", namespace=island.namespace,
        )  # fmt: skip

    def have_averaged() -> bool:
        found = [read_snapshot(programs.folder / name) for name in hidden]
        return all(node is not None and node.rounds_averaged > 0 for node in found)

    wait_until(have_averaged, deadline_s=JOIN_TIMEOUT_S, what="both have averaged")
    for name in hidden:
        node = read_snapshot(programs.folder / name)
        assert node is not None
        assert "relayed" == node.reachable
        assert peer_id[-6:] in node.reachable_detail
    assert "/tcp/4001: refused" in programs.text("finds-out.log")

    ask = ("--initial-peers", entries[0], "--state-dir", "visitor", "--json")
    shown = programs.run("node", "status", *ask, namespace=sea.hub)
    holders = json.loads(shown.stdout)["blocks"][0]["holders"]
    assert [True, True] == [holder["is_relayed"] for holder in holders]
    text = programs.run("node", "generate", "The ", "-n", "4", *ask, namespace=sea.hub)
    assert 0 == text.returncode, text.stderr
    assert 4 == len(json.loads(text.stdout)["text"].encode(errors="replace")[-4:])
