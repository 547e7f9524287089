"""Which run a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_p2p.errors import ConfigError, SwarmError
from bt_p2p.testing.tiny import tiny_manifest
from node.commands.init import merge
from node.manifests import choose_run, join_command, read_manifest

ONE, TWO = tiny_manifest("alpha"), tiny_manifest("beta")
RUNS = {ONE.run_id: ONE, TWO.run_id: TWO}


def test_the_only_run_needs_no_name() -> None:
    """One run in the swarm is the one that is meant."""
    assert ONE == choose_run({ONE.run_id: ONE}, None)


def test_the_start_of_an_id_is_enough_if_it_is_unique() -> None:
    """People type names, not hashes."""
    assert TWO == choose_run(RUNS, "bet")


def test_several_runs_have_to_be_told_apart() -> None:
    """All are listed."""
    with pytest.raises(ConfigError) as caught:
        choose_run(RUNS, None)

    assert ONE.run_id in str(caught.value)
    assert TWO.run_id in str(caught.value)


def test_an_unknown_run_lists_those_there_are() -> None:
    """A typing error is easily seen."""
    with pytest.raises(ConfigError, match="no run starts with 'gamma'"):
        choose_run(RUNS, "gamma")


def test_a_swarm_without_runs_is_told_from_a_wrong_name() -> None:
    """It says how to found one."""
    with pytest.raises(SwarmError, match="knows no run"):
        choose_run({}, "alpha")


def test_a_manifest_file_is_read_back(tmp_path: Path) -> None:
    """Indented or canonical, it is the same run."""
    path = tmp_path / "m.json"
    path.write_text(ONE.model_dump_json(indent=2))

    assert ONE == read_manifest(path, run="alpha")


def test_the_pasted_line_names_run_and_peer() -> None:
    """What the others paste is complete."""
    assert f"bt-node join --run {ONE.run_id} --initial-peers ADDRESS" == join_command(
        ONE, "ADDRESS"
    )


def test_flags_replace_only_what_was_given() -> None:
    """None is "not given"; sections are merged field by field."""
    base = {"name": "a", "model": {"d_model": 8, "context": 16}, "seed": 1}
    flags = {"name": None, "model": {"d_model": 32, "context": None}, "objective": {"name": None}}

    assert {"name": "a", "model": {"d_model": 32, "context": 16}, "seed": 1} == merge(base, flags)


def test_a_section_that_is_no_section_is_refused() -> None:
    """TOML with `model = 3`."""
    with pytest.raises(ConfigError, match="model is 3"):
        merge({"model": 3}, {"model": {"d_model": 8}})
