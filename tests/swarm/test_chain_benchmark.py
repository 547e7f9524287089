"""The benchmark of chains with real holders behind real relays."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(240)]  # nine programs start, on a busy machine

MODEL = {"d_model": 16, "num_heads": 2, "num_blocks": 2, "layers_per_block": 1, "context": 32}
ONE_WAY_MS = 20


def test_real_holders_are_timed_disturbed_and_ended(tmp_path: Path) -> None:
    """All bytes go through the relays, an answer outlives its holder, and nothing is left behind."""
    from benchmarks.chain.config import FaultSetting, Link, Setting
    from benchmarks.chain.faults import run_objective
    from benchmarks.chain.measure import SettingRun
    from benchmarks.chain.swarm import chain_swarm

    setting = Setting(
        name="tiny",
        model=MODEL,
        objective={"sweep_max_bytes": 8},
        ways=("ar", "draft"),
        lengths=(4,),
        links=(Link(), Link(one_way_ms=ONE_WAY_MS)),
    )
    measured = SettingRun(setting, None, [b"the cat"], chain_swarm).run(tmp_path, print, print)
    faults = FaultSetting(
        model={**MODEL, "num_blocks": 1},
        objective=setting.objective,
        new_bytes=8,
        kills=1,
        freezes=1,
    )
    figures = run_objective(faults, "plain", b"the cat", tmp_path, lambda _: None, chain_swarm)

    assert 0 == measured.num_bypasses
    near, far = measured.smallest
    assert 2 * ONE_WAY_MS <= far.lowest_ms
    assert far.lowest_ms - near.lowest_ms < 4 * ONE_WAY_MS  # opening a stream takes no trips
    assert all(one.is_as_ar for one in measured.figures if one.way == "draft")
    assert [(1, 1), (1, 1)] == [(one.num_answers, one.num_identical) for one in figures]
    assert [1, 1] == [one.num_replaced for one in figures]
