"""benchmarks.fuzz: inputs that are malformed, and eyes for what they do."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import msgpack
import pytest

from benchmarks.fuzz.decoder import Decoder
from benchmarks.fuzz.forms import FRAME, JSON, MSGPACK, PATH, SAFETENSORS, Form
from benchmarks.fuzz.mutation import mutate
from benchmarks.fuzz.report import Results, Row, render_report
from benchmarks.fuzz.watch import Outcome, WorkerOptions, feed_all
from benchmarks.fuzz.worker import STATE_SIZE_BYTES, Fault, Feeder, StateFile
from benchmarks.quality.machine import Code, Machine

MESSAGES = {
    "msgpack": (MSGPACK, msgpack.packb({"a": [1, {"b": b"c"}], "d": None})),
    "json": (JSON, b'{"a":[1,{"b":"c"}],"d":null}'),
    "frame": (FRAME, (4).to_bytes(4, "little") + (2).to_bytes(8, "little") + b"\x81\xa1a\x01xy"),
    "safetensors": (SAFETENSORS, (2).to_bytes(8, "little") + b"{}data"),
    "path": (PATH, b"/ip4/127.0.0.1/tcp/1"),
}


class Honest(random.Random):
    """Never lies about a size."""

    def random(self) -> float:
        return 1.0


def options(**changes) -> WorkerOptions:
    """A few inputs to the quickest decoder."""
    values = {
        "decoder": "span",
        "num_inputs": 300,
        "seed": 1,
        "with_swarm": False,
        "is_guided": False,
        "input_timeout_s": 20.0,
        "max_growth_bytes": 1 << 30,
    }
    return WorkerOptions(**values | changes)


@pytest.mark.parametrize("name", list(MESSAGES))
def test_a_message_comes_back_from_its_tree(name: str) -> None:
    """So what is changed is the tree, and nothing else."""
    form, data = MESSAGES[name]
    tree, rest = form.split(data)
    assert data == form.join(tree, rest, Honest())


@pytest.mark.parametrize("name", [*MESSAGES, "bytes"])
def test_inputs_differ_stay_below_the_cap_and_can_be_repeated(name: str) -> None:
    """The same seed makes the same inputs."""
    form, data = MESSAGES.get(name, (None, b"any message"))

    def inputs(form: Form | None) -> list[bytes]:
        rng = random.Random(3)
        return [mutate(rng, [data], form, max_size_bytes=300) for _ in range(300)]

    found = inputs(form)
    assert found == inputs(form)
    assert len(set(found)) > 150
    assert max(map(len, found)) <= 300


def test_what_a_decoder_may_not_raise_is_kept_once_with_its_input(tmp_path: Path) -> None:
    """What it may raise is a refusal."""

    def decode(data: bytes) -> bytes:
        if data == b"refuse":
            raise ValueError("refused")
        if data.startswith(b"fault"):
            raise ZeroDivisionError("by chance")
        return data

    decoder = Decoder(
        name="d", sender="s", decode=decode, messages=(b"ok",), refuses_with=(ValueError,)
    )
    (tmp_path / "state").write_bytes(bytes(STATE_SIZE_BYTES))
    state = StateFile(tmp_path / "state")
    feeder = Feeder(decoder, state, tmp_path / "faults")
    for data in (b"ok", b"refuse", b"fault 1", b"fault 2", b"ok"):
        feeder.feed(data)

    assert (4, 1, b"ok") == (
        state.read().num_inputs,
        state.read().num_accepted,
        state.read().last_input,
    )
    feeder.end()
    assert (5, 2, b"") == (
        state.read().num_inputs,
        state.read().num_accepted,
        state.read().last_input,
    )
    lines = (tmp_path / "faults").read_text().splitlines()
    fault = Fault(**json.loads(lines[0]))
    assert (1, "ZeroDivisionError: by chance") == (len(lines), fault.error)
    assert b"fault 1" == bytes.fromhex(fault.input_hex)
    assert "test_fuzz.py" in fault.place


@pytest.mark.slow
def test_a_worker_feeds_as_many_inputs_as_it_was_asked(tmp_path: Path) -> None:
    """In a process of its own; the watcher sees them all."""
    outcome = feed_all(options(), tmp_path, lambda _done: True)
    assert (300, ()) == (outcome.num_inputs, outcome.faults)
    assert 0 < outcome.num_accepted < 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"max_growth_bytes": -1, "num_inputs": 10**9}, "grew by"),
        ({"decoder": "none"}, "ended with code 1: .*StopIteration"),
    ],
)
def test_a_worker_that_grows_or_dies_is_a_finding(changes, error, tmp_path, monkeypatch) -> None:
    """Of the process, not of a line in it."""
    monkeypatch.setattr("benchmarks.fuzz.watch._MAX_ENDS", 1)
    outcome = feed_all(options(**changes), tmp_path, lambda _done: True)
    (fault,) = outcome.faults
    assert "the process" == fault.place
    assert re.match(error, fault.error), fault.error


def test_the_report_says_what_was_fed_and_what_was_found() -> None:
    """Counts, and each finding with its input."""
    decoder = Decoder(name="lease", sender="any peer", decode=len, messages=(b"x",))
    outcome = Outcome(
        num_inputs=1000,
        num_accepted=250,
        duration_s=1.0,
        growth_bytes=5_000_000,
        coverage=7,
        faults=(Fault(error="KeyError: 'a'", place="lease.py:1", input_hex="00ff"),),
    )
    results = Results(
        engine="mutation",
        seed=1,
        input_timeout_s=10,
        max_growth_bytes=1 << 28,
        rows=(Row.of(decoder, outcome),),
        machine=Machine(
            cpu="c", num_cores=2, ram_size_bytes=1, gpu="", system="s", python="3", torch="2"
        ),
        code=Code(commit="abc", is_dirty=False),
        date="today",
        command="python -m benchmarks.fuzz",
    )
    text = render_report(results)
    assert "**1,000 inputs to 1 decoders: 1 finding.**" in text
    assert "| lease | any peer | 1,000 | 25.0% | 1 | 5.0 MB | 7 |" in text
    assert "- KeyError: 'a' at lease.py:1, input `00ff`" in text
