"""The demo's story at a smaller size: churn, a dead bootstrap peer, learning, averaging."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Programs


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_quick_demo_learns_averages_and_leaves_nothing(programs: Programs) -> None:
    """Exit 0 means: learned, every block averaged, the killed came back, nothing left."""
    done = programs.run("node.demo", "--quick", "--picture", "status.svg", timeout_s=290)

    report = json.loads((programs.folder / ".demo" / "report.json").read_text())
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "training" in (programs.folder / "status.svg").read_text(encoding="utf-8")
    assert report["ce_end"] < min(report["ce_order1"], report["ce_start"] - 1.5)
    assert all(count > 0 for count in report["averaged_rounds_by_block"])
    assert (5, 0, True) == (report["peers"], report["leftovers"], report["killed_came_back"])
