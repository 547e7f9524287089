"""The benchmark of traversals: its measures, its report, and one tiny run of it."""

from __future__ import annotations

import asyncio
import json
import math
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quality.config import read_config
from benchmarks.quality.plan import plan_trainings
from benchmarks.quality.texts import load_texts
from benchmarks.traversals.cli import app
from benchmarks.traversals.models import Judge, Output, Trained, continue_all
from benchmarks.traversals.report import distinct_share, make_row, one_line
from benchmarks.traversals.run import Options, cut_places, run_benchmark, ways_of
from bt_p2p.errors import ConfigError
from bt_p2p.model.block import Block
from bt_p2p.model.checkpoint import save_checkpoint
from bt_p2p.objective.compose import compose
from bt_p2p.testing.tiny import tiny_manifest, tiny_weights
from node.command_line import run_app
from node.stop import StopRequest

CONFIG = """
seeds = [3]
batch_size = 4
steps_per_round = 5
evals = 1
[model]
d_model = 16
num_heads = 2
context = 16
total_layers = 2
[objective]
sweep_max_bytes = 4
[[budgets]]
name = "b"
steps = 5
[[arms]]
name = "whole"
objective = "end_to_end"
[[arms]]
name = "alone"
objective = "plain"
num_blocks = 2
"""


def tiny_trained(objective: str = "plain") -> Trained:
    """A model of untrained blocks."""
    manifest = tiny_manifest(objective=objective, num_blocks=2)
    weights = tuple(tiny_weights(manifest, block) for block in range(2))
    return Trained(title="tiny", manifest=manifest, weights=weights)


def tiny_options(folder: Path, **changes: object) -> Options:
    """A run on small texts."""
    values = {
        "config": str(folder / "tiny.toml"), "arms": ("alone", "whole"), "budget": None,
        "seed": 3, "num_prefixes": 3, "prefix_bytes": 8, "new_bytes": 10, "data": folder,
        "work": folder / "work", "out": folder / "out", "command": "again",
    }  # fmt: skip
    return Options(**{**values, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts, a config, and the weights of both its arms, untrained."""
    (tmp_path / "tiny.toml").write_text(CONFIG, encoding="utf-8")
    for name in ("train", "valid", "test"):
        words = "the cat sat on a mat and slept\n" * 20
        (tmp_path / f"wiki_{name}.txt").write_text(words, encoding="utf-8")
    work = tmp_path / "work"
    corpus = load_texts(tmp_path, cache_dir=work).corpus
    for training in plan_trainings(read_config(tmp_path / "tiny.toml"), corpus):
        for block in range(training.manifest.model.num_blocks):
            path = training.weights_path(work, block, 5)
            path.parent.mkdir(parents=True)
            save_checkpoint(path, tiny_weights(training.manifest, block), {})
            training.done_path(work, block).write_text("{}")
    return tmp_path


@pytest.mark.parametrize("objective", ["plain", "cascade"])
@pytest.mark.parametrize(("num_prefix", "num_new"), [(3, 5), (8, 9), (8, 14), (16, 3), (20, 4)])
def test_the_judge_scores_new_bytes_as_one_would_by_hand(objective, num_prefix, num_new):
    """Byte after byte, each after the last ones that fit the context of 16."""
    trained = tiny_trained(objective)
    text = bytes(range(60, 60 + num_prefix + num_new))
    expected = 0.0
    for at in range(num_prefix, len(text)):
        log_probs, features = [], None
        for weights in trained.weights:
            block = Block(trained.manifest.model, trained.manifest.objective)
            block.load_state_dict(weights)
            found = block(torch.tensor([[*text[max(0, at - 16) : at]]]), features)
            features = found.features_BTD if objective == "cascade" else None
            log_probs.append(found.logits_BTV[0, -1].log_softmax(-1))
        expected -= float(compose(log_probs)[text[at]].detach())
    nats = Judge(trained).nats(text[:num_prefix], text[num_prefix:])
    assert expected == pytest.approx(nats, rel=1e-5)


def test_distinct_pairs_of_examples():
    """Pairs lie within one output; repeated ones lower the share."""
    assert 0.0 == distinct_share([b"", b"a"])
    assert 1.0 == distinct_share([b"abc", b"bd"])
    assert 0.25 == distinct_share([b"aaaaa"])
    assert 2 / 3 == distinct_share([b"the cat sat".split(), b"the cat".split()])


@given(st.lists(st.binary(max_size=6)))
def test_distinct_pairs_of_any_outputs(outputs):
    """As counted by index."""
    pairs = [text[at : at + 2] for text in outputs for at in range(len(text) - 1)]
    assert distinct_share(outputs) == (len(set(pairs)) / len(pairs) if pairs else 0)


def test_a_row_has_bits_errors_and_traversals():
    """Mean of the outputs, its standard error, and bytes over traversals."""
    outputs = [Output(data=b"a b c d ", num_traversals=2), Output(data=b"a b ", num_traversals=1)]
    row = make_row("sweep 4", outputs, [8 * math.log(2), 12 * math.log(2)])
    assert (2.0, 1.0) == (pytest.approx(row.bits_per_byte), pytest.approx(row.bits_error))
    assert (1.5, 4.0) == (row.traversals_per_output, row.bytes_per_traversal)
    assert (0.75, 0.7) == (row.distinct_word_pairs, row.distinct_byte_pairs)
    assert ("a b c d ", "a b ") == row.samples
    assert "a↵\ufffd\ufffd" == one_line(b"a\n\x1b\xff")


def test_every_way_takes_as_many_traversals_as_its_chunks():
    """10 bytes: 10 traversals one by one, 3 in sweeps of 4; a stop ends it."""
    trained = tiny_trained()
    ways = ways_of(trained.manifest, 10)
    names = [title.split(",")[0] for title in ways]
    assert ["ar", "ar", "draft", "draft", "sweep 4", "sweep 4"] == names
    counts, texts = [], []
    for way in ways.values():
        found = asyncio.run(
            continue_all(trained, [b"ab", b"ab"], lambda _, way=way: way, lambda: True)
        )
        assert found[0] == found[1]
        counts += [(len(found[0].data), found[0].num_traversals)]
        texts += [found[0].data]
    assert [(10, 10), (10, 10), (10, 3), (10, 3)] == counts[:2] + counts[4:]
    assert texts[:2] == texts[2:4]
    assert all(num_bytes == 10 > num for num_bytes, num in counts[2:4])
    assert [] == asyncio.run(continue_all(trained, [b"ab"], lambda _: way, lambda: False))
    assert 4 == len(ways_of(trained.manifest, 3))


def test_prefixes_are_spread_and_followed_by_the_real_text(tmp_path):
    """The first one begins the text; too short a text is refused."""
    text = np.arange(30, dtype=np.uint8)
    places = cut_places(text, tiny_options(tmp_path))
    assert [0, 4, 8] == [prefix[0] for prefix, _ in places]
    assert all(prefix + real == bytes(range(prefix[0], prefix[0] + 18)) for prefix, real in places)
    with pytest.raises(ConfigError, match="too few"):
        cut_places(text[:19], tiny_options(tmp_path))


@pytest.mark.slow
def test_a_run_is_reported_and_goes_on_where_it_was_stopped(folder, capsys):
    """A stop reports nothing; a second run reads what the first has generated."""
    stop = StopRequest()
    stop.signal_number = signal.SIGINT
    stop.event.set()
    assert 130 == run_benchmark(tiny_options(folder), stop)
    assert "stopped; the same command goes on from here: again" in capsys.readouterr().err
    assert not (folder / "out").exists()

    assert 0 == run_benchmark(tiny_options(folder), StopRequest())
    kept = {path: path.stat().st_mtime_ns for path in (folder / "work/traversals").iterdir()}
    assert 6 == len(kept)
    found = json.loads((folder / "out/results.json").read_text())
    traversals = [row["traversals_per_output"] for row in found["rows"]]
    assert [0, 10, 10, 3, 3] == traversals[:3] + traversals[5:]
    assert all(6 < row["bits_per_byte"] < 10 for row in found["rows"])  # untrained
    report = (folder / "out/traversals.md").read_text()
    for part in ("| real text |  |  | ", "| sweep 4, greedy | 3 | 3.3 | ", "|the cat |", "`again`"):
        assert part in report

    assert 0 == run_benchmark(tiny_options(folder), StopRequest())
    assert found["rows"] == json.loads((folder / "out/results.json").read_text())["rows"]
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arms": ("whole", "whole")}, "cannot judge itself"),
        ({"arms": ("other", "whole")}, "there are: whole b seed 3, alone b seed 3"),
        ({"prefix_bytes": 17}, "over the model's context"),
        ({"work": Path("nowhere")}, "is not trained to its end"),
    ],
)
def test_what_cannot_be_done_is_said(folder, changes, words):
    """Before anything is generated."""
    with pytest.raises(ConfigError, match=words):
        run_benchmark(tiny_options(folder, **changes), StopRequest())


def test_a_wrong_folder_ends_with_2(monkeypatch, capsys):
    """One line, without a traceback."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test keeps its own handlers
    monkeypatch.setattr("sys.argv", ["traversals", "--data", "nowhere"])
    assert 2 == run_app(app, "traversals")
    assert "there is no folder nowhere" in capsys.readouterr().err
