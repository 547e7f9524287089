"""The benchmark of attacks: what attackers bring, how rounds end, reports, and one tiny run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.attacks.attackers import Attacker
from benchmarks.attacks.cli import CONFIGS, app
from benchmarks.attacks.config import Scenario, read_config
from benchmarks.attacks.run import make_swarm
from benchmarks.quality.texts import Texts, load_texts
from bt_p2p.model.seeding import seeded_generator
from node.command_line import run_app
from node.stop import StopRequest

TINY = """
rounds = 3
round_steps = 2
final_bytes = 100
curve_bytes = 100
replicas = 3
attackers = [1]
kinds = ["nan", "sign_flip"]
pair_kinds = ["sign_flip"]
[manifest]
model = { num_blocks = 1, layers_per_block = 1, d_model = 16, num_heads = 2, context = 16 }
objective = { sweep_fraction = 0.0, sweep_max_bytes = 4 }
optimizer = { batch_size = 2 }
"""
START, OWN = torch.zeros(4), torch.ones(4)


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("wiki_train.txt", "wiki_valid.txt", "wiki_test.txt"):
        (folder / name).write_text("the quick brown fox jumps over the lazy dog. " * 30)
    return folder


@pytest.fixture
def texts(data: Path, tmp_path: Path) -> Texts:
    return load_texts(data, cache_dir=tmp_path)


def brings(kind) -> torch.Tensor:
    attacker = Attacker(kind, seeded_generator("test"))
    return attacker.brings(START, OWN, torch.stack([OWN, 2 * OWN]))


def test_the_shipped_configs_name_every_attack_once() -> None:
    """And every scenario has a file of its own."""
    for name in ("full.toml", "quick.toml"):
        names = [scenario.name for scenario in read_config(CONFIGS / name).scenarios]
        assert len(set(names)) == len(names)
    assert "10-label_flip-4-full" in [
        scenario.name for scenario in read_config(CONFIGS / "full.toml").scenarios
    ]


def test_attackers_bring_what_their_kind_says() -> None:
    """From zeros, by an honest change of ones."""
    assert bool(brings("nan").isnan().all())
    assert torch.equal(-OWN, brings("sign_flip"))
    assert float(brings("noise").norm()) == pytest.approx(10 * 2.0)  # the median's norm
    assert torch.equal(START, brings("replay"))
    assert torch.equal(OWN, brings("lying_reducer"))
    assert float(brings("hidden")[0]) == pytest.approx(1.5 - 0.5**0.5)
    assert torch.equal(
        -OWN, Attacker("lying_reducer", seeded_generator("x")).hands_back(OWN, START)
    )


def end_round(config_path: Path, texts: Texts, scenario: Scenario, rounds: int = 1):
    """A swarm after rounds without any training."""
    manifest = read_config(config_path).run_manifest(0, texts.corpus)
    swarm = make_swarm(manifest, scenario, texts)
    for number in range(rounds):
        starts = {replica.peer_id: replica.trainer.weights() for replica in swarm.replicas}
        for replica in swarm.honest:
            moved = {name: tensor + 0.001 for name, tensor in starts[replica.peer_id].items()}
            replica.trainer.load_weights(moved)
        swarm.end_round(number, starts)
    return swarm


def test_nan_ends_an_unprotected_block(config_path: Path, texts: Texts) -> None:
    """All adopt it."""
    scenario = Scenario(kind="nan", num_attackers=1, replicas=3, protection="none")
    swarm = end_round(config_path, texts, scenario)
    assert all(
        bool(tensor.isnan().all()) for each in swarm.honest for tensor in each.agreed.values()
    )


def test_nan_costs_a_protected_block_one_round(config_path: Path, texts: Texts) -> None:
    """Afterwards the attacker is not met."""
    scenario = Scenario(kind="nan", num_attackers=1, replicas=3, protection="full")
    swarm = end_round(config_path, texts, scenario, rounds=2)
    assert (2, 2) == (swarm.tally.failed, swarm.tally.averages)
    assert {1} == set(swarm.tally.first_refusal.values())
    assert 0 == swarm.tally.wrongly_refused


@pytest.mark.slow
def test_a_run_stops_goes_on_and_reports(
    config_path: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished scenario is not run again, so its CPU time stays the same."""
    monkeypatch.setattr(StopRequest, "listen", lambda self: None)
    arguments = ["attacks", "--config", str(config_path), "--data", str(data)]
    arguments += ["--out", str(tmp_path / "out"), "--jobs", str(tmp_path / "jobs")]
    monkeypatch.setattr("sys.argv", arguments)
    done = []
    for _ in range(2):
        assert run_app(app, "attacks") == 0
        done.append(json.loads((tmp_path / "out" / "attacks.json").read_text())["results"])
    assert done[0] == done[1]
    text = (tmp_path / "out" / "attacks.md").read_text()
    assert "| NaN | unprotected |" in text
    assert "not finite" in text
    assert "A group of two, one of them hostile" in text
    assert (tmp_path / "out" / "attacks.svg").is_file()
