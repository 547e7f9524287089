"""The benchmark from options to report."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.fuzz.decoder import Decoder
from benchmarks.fuzz.decoders import pure_decoders
from benchmarks.fuzz.report import Results, Row, render_report
from benchmarks.fuzz.watch import WorkerOptions, feed_all
from benchmarks.quality.machine import this_code, this_machine
from benchmarks.quality.training import write_atomically
from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError
from node.stop import StopRequest
from node.tui.terminal import can_redraw, make_console

MAX_GROWTH_BYTES = 256 * 1024**2
INPUT_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the user asked for."""

    num_inputs: int
    """Of all decoders together, at least."""
    seed: int
    only: tuple[str, ...]
    """Names of decoders; none is all of them."""
    is_guided: bool
    """By atheris."""
    out: Path
    command: str
    """As it was typed, for the report."""


def has_atheris() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec("atheris") is not None


def run_benchmark(options: Options, stop: StopRequest) -> int:
    """Feed every decoder and write the report; returns the exit code, 1 if anything was found.

    Raises:
        ConfigError: atheris is wanted and not installed, or a decoder is not known.
    """
    if options.is_guided and not has_atheris():
        raise ConfigError("atheris is not installed; pip install -e '.[fuzz]', or use --engine own")
    console = make_console(stderr=True)
    decoders = _choose(options.only)
    share = -(-options.num_inputs // len(decoders))
    rows: list[Row] = []
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeRemainingColumn(),
        console=console,
        disable=not can_redraw(console),
    )
    with bars, tempfile.TemporaryDirectory() as folder:
        bar = bars.add_task("inputs", total=share * len(decoders))
        for index, (decoder, is_swarm) in enumerate(decoders):
            place = Path(folder) / str(index)
            place.mkdir()

            def watch(done: int, before: int = index * share) -> bool:
                bars.update(bar, completed=before + done)
                return not stop.is_requested

            outcome = feed_all(
                WorkerOptions(
                    decoder=decoder.name,
                    num_inputs=share,
                    seed=options.seed,
                    with_swarm=is_swarm,
                    is_guided=options.is_guided,
                    input_timeout_s=INPUT_TIMEOUT_S,
                    max_growth_bytes=MAX_GROWTH_BYTES,
                ),
                place,
                watch,
            )
            if stop.is_requested:
                console.print("stopped; no report was written")
                return stop.exit_code
            rows.append(Row.of(decoder, outcome))
            console.print(rows[-1].line())
    results = Results(
        engine="atheris and mutation of valid messages" if options.is_guided else "mutation",
        seed=options.seed,
        input_timeout_s=INPUT_TIMEOUT_S,
        max_growth_bytes=MAX_GROWTH_BYTES,
        rows=tuple(rows),
        machine=this_machine("cpu"),
        code=this_code(),
        date=datetime.fromtimestamp(SystemClock().now_s(), tz=UTC).isoformat(timespec="seconds"),
        command=options.command,
    )
    write_atomically(options.out / "fuzz.json", results.model_dump_json(indent=2) + "\n")
    write_atomically(options.out / "fuzz.md", render_report(results))
    console.print(f"report: {options.out / 'fuzz.md'}")
    return 1 if results.num_faults else 0


def _choose(only: tuple[str, ...]) -> list[tuple[Decoder, bool]]:
    """The decoders to feed, and whether each needs hivemind."""
    from benchmarks.fuzz.swarm_decoders import swarm_decoders  # noqa: PLC0415 - imports hivemind

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        pure = pure_decoders(Path(folder), runner.get_loop())
    found = [(each, False) for each in pure]
    found += [(each, True) for each in swarm_decoders()]
    names = [each.name for each, _ in found]
    for name in only:
        if name not in names:
            raise ConfigError(f"decoder {name!r} is not known; there are: {', '.join(names)}")
    return [(each, is_swarm) for each, is_swarm in found if not only or each.name in only]
