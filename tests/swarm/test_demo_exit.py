"""`python -m node.demo` as whoever starts it sees it end; its modules load hivemind."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from node.command_line import run_app

if TYPE_CHECKING:
    from node.demo.report import DemoReport

pytestmark = pytest.mark.swarm


@pytest.fixture
def demo() -> ModuleType:
    """The program."""
    from node.demo import __main__

    return __main__


def report_of(changes: dict[str, object]) -> DemoReport:
    from node.demo.report import DemoReport

    values: dict[str, object] = {
        "run_id": "demo-abc",
        "ce_start": 5.5,
        "ce_end": 1.5,
        "ce_end_per_block": (1.6, 1.6),
        "ce_order1": 2.5,
        "bytes_scored": 1000,
        "rounds": 9,
        "averaged_rounds": 20,
        "averaged_rounds_by_block": (10, 10),
        "bytes_sent": 1000,
        "peers": 5,
        "traversals": {"ar": 40},
        "samples": {"ar": "text"},
        "seventh_took_round": 3,
        "killed_dropped_after_s": 25.0,
        "killed_came_back": True,
        "leftovers": 0,
        "seconds": 100.0,
    }
    return DemoReport.model_validate(values | changes)


@pytest.mark.parametrize(
    ("changes", "exit_code", "told"),
    [
        ({}, 0, ""),
        ({"ce_end": 3.0}, 1, "FAILED: 3.000 is not below the order-1 model's 2.500"),
        ({"averaged_rounds_by_block": (10, 0)}, 1, "FAILED: block 1 was never averaged"),
        ({"killed_came_back": False}, 1, "FAILED: the killed volunteer did not come back"),
        ({"leftovers": 2}, 1, "FAILED: 2 processes were left running"),
    ],
    ids=["well", "not learned", "not averaged", "not back", "left over"],
)
def test_a_story_that_went_wrong_is_a_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    demo: ModuleType,
    changes: dict[str, object],
    exit_code: int,
    told: str,
) -> None:
    monkeypatch.setattr(demo, "_play", lambda *_arguments: report_of(changes))
    monkeypatch.setattr("sys.argv", ["demo", "--folder", str(tmp_path / "demo")])

    assert exit_code == run_app(demo.app, "demo")
    assert told in capsys.readouterr().out


def test_a_folder_of_somebody_else_is_a_usage_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    demo: ModuleType,
) -> None:
    (tmp_path / "thesis.txt").write_text("do not remove")
    monkeypatch.setattr("sys.argv", ["demo", "--folder", str(tmp_path)])

    assert 2 == run_app(demo.app, "demo")
    assert "is not empty and not of a demo" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()
