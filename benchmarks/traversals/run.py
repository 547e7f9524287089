"""The benchmark from options to report."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from benchmarks.quality.config import config_path, read_config
from benchmarks.quality.machine import this_code, this_machine
from benchmarks.quality.plan import plan_trainings
from benchmarks.quality.texts import VALID, load_texts, text_hash
from benchmarks.quality.training import write_atomically
from benchmarks.traversals.models import Judge, Output, Trained, Watch, continue_all, load_trained
from benchmarks.traversals.report import NUM_SAMPLES, Results, make_row, one_line, render_report
from bt_p2p.chain.generate import GenerateOptions
from bt_p2p.chain.modes import GenerateMode
from bt_p2p.chain.sampling import Sampling
from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import RunManifest
from node.stop import StopRequest
from node.tui.terminal import can_redraw, make_console

SWEEP_BYTES = (4, 16, 64)
"""Bytes in one traversal of `sweep`."""
TEMPERATURES = (0.8, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the user asked for."""

    config: str
    """Name or path."""
    arms: tuple[str, str]
    """Of the model and of the judge."""
    budget: str | None
    """Of both; None takes the longest of each."""
    seed: int
    num_prefixes: int
    prefix_bytes: int = 64
    new_bytes: int
    data: Path | None
    """Folder of texts; None takes the embedded corpus."""
    work: Path
    out: Path
    command: str
    """As it was typed, for the report and for the line that says how to go on."""


def run_benchmark(options: Options, stop: StopRequest) -> int:
    """Generate what is not kept yet, judge everything, write the report; returns the exit code.

    Raises:
        ConfigError: an option is wrong, or a model is not trained.
        CheckpointError: weights are damaged, or the disk is full.
    """
    console = make_console(stderr=True)
    if options.arms[0] == options.arms[1]:
        raise ConfigError(f"{options.arms[0]} cannot judge itself; give another --judge-arm")
    texts = load_texts(options.data, cache_dir=options.work)
    trainings = plan_trainings(read_config(config_path(options.config)), texts.corpus)
    load = partial(
        load_trained, trainings, budget=options.budget, seed=options.seed, work=options.work
    )
    model, judge = (load(arm) for arm in options.arms)
    if options.prefix_bytes > model.manifest.model.context:
        raise ConfigError(f"prefixes of {options.prefix_bytes} bytes are over the model's context")
    places = cut_places(texts.scored[VALID], options)
    torch.set_num_threads(1)  # blocks compute side by side, each in a thread
    real = [Output(data=data, num_traversals=0) for _, data in places]
    prefixes = [prefix for prefix, _ in places]
    ways = ways_of(model.manifest, options.new_bytes)
    ask, rows = Judge(judge), []
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} traversals"),
        TimeRemainingColumn(),
        console=console,
        disable=not can_redraw(console),
    )
    with bars:
        for title, way in {"real text": None, **ways}.items():
            if way is None:
                found: list[Output] = real
            else:
                total = len(prefixes) * -(-options.new_bytes // (way.chunk_bytes or 1))
                bar = bars.add_task(title, total=total)

                def watch(bar: TaskID = bar) -> bool:
                    bars.advance(bar)
                    return not stop.is_requested

                found = _continue(model, prefixes, way, options.work, watch)
                bars.remove_task(bar)
            nats = [
                ask.nats(prefix, output.data)
                for prefix, output in zip(prefixes, found, strict=False)
                if not stop.is_requested
            ]
            if stop.is_requested:
                console.print(f"stopped; the same command goes on from here: {options.command}")
                return stop.exit_code
            rows.append(make_row(title, found, nats))
            console.print(f"{title}: {rows[-1].bits_per_byte:.3f} bits per byte")
    notes = [texts.note] if texts.note else []
    if model.manifest.objective.sweep_fraction == 0:
        notes.append("The model was not trained for sweeps: its sweep_fraction is 0.")
    results = Results(
        model=model.title,
        judge=judge.title,
        manifests={one.title: one.manifest for one in (model, judge)},
        weights_sha256={one.title: one.sha256 for one in (model, judge)},
        text=texts.names[VALID],
        text_sha256=text_hash(texts.scored[VALID]),
        num_prefixes=len(prefixes),
        prefix_bytes=options.prefix_bytes,
        new_bytes=options.new_bytes,
        notes=tuple(notes),
        machine=this_machine("cpu"),
        code=this_code(),
        date=datetime.fromtimestamp(SystemClock().now_s(), tz=UTC).isoformat(timespec="seconds"),
        command=options.command,
        prefixes=tuple(one_line(prefix) for prefix in prefixes[:NUM_SAMPLES]),
        rows=tuple(rows),
    )
    write_atomically(options.out / "results.json", results.model_dump_json(indent=2) + "\n")
    write_atomically(options.out / "traversals.md", render_report(results))
    console.print(f"report: {options.out / 'traversals.md'}")
    return 0


def ways_of(manifest: RunManifest, new_bytes: int) -> dict[str, GenerateOptions]:
    """All ways that a run allows and that make a difference for so many bytes, by title."""
    longest = min(manifest.objective.sweep_max_bytes, new_bytes)
    modes: dict[str, tuple[GenerateMode, int | None]] = {"ar": ("ar", None)}
    modes["draft"] = ("draft", None)
    modes |= {f"sweep {chunk}": ("sweep", chunk) for chunk in SWEEP_BYTES if chunk <= longest}
    return {
        f"{name}, {f'temperature {temperature:g}' if temperature else 'greedy'}": GenerateOptions(
            mode=mode,
            max_new_bytes=new_bytes,
            chunk_bytes=chunk,
            sampling=Sampling(temperature=temperature, top_p=1.0),
        )
        for name, (mode, chunk) in modes.items()
        for temperature in TEMPERATURES
    }


def cut_places(text: NDArray[np.uint8], options: Options) -> list[tuple[bytes, bytes]]:
    """Prefixes evenly spread over a text, each with what really follows it.

    Raises:
        ConfigError: the text is too short.
    """
    prefix_bytes, new_bytes = options.prefix_bytes, options.new_bytes
    num_starts = text.size - prefix_bytes - new_bytes + 1
    if num_starts < options.num_prefixes:
        raise ConfigError(
            f"the text has {text.size} bytes, too few for {options.num_prefixes} prefixes; ask "
            f"for fewer --prefixes or --new-bytes"
        )
    middles = [
        index * num_starts // options.num_prefixes + prefix_bytes
        for index in range(options.num_prefixes)
    ]
    return [
        (text[at - prefix_bytes : at].tobytes(), text[at : at + new_bytes].tobytes())
        for at in middles
    ]


def _continue(
    model: Trained, prefixes: Sequence[bytes], way: GenerateOptions, work: Path, watch: Watch
) -> list[Output]:
    """Outputs kept before, or new ones; not all of them if it was stopped before the end."""
    facts = [model.manifest.run_id, model.sha256, repr(way), [prefix.hex() for prefix in prefixes]]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    path = work / "traversals" / f"{digest[:16]}.json"
    try:
        kept = json.loads(path.read_bytes())
        return [Output(data=bytes.fromhex(data), num_traversals=count) for data, count in kept]
    except (OSError, ValueError):
        pass  # not there, or not whole
    found = asyncio.run(
        continue_all(
            model,
            prefixes,
            lambda index: replace(way, seed=index),
            watch,
        )
    )
    if len(found) == len(prefixes):
        write_atomically(path, json.dumps([(one.data.hex(), one.num_traversals) for one in found]))
    return found
