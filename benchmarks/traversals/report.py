"""What is measured of continuations, as JSON and as Markdown. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from pydantic import BaseModel, ConfigDict

from benchmarks.quality.machine import Code, Machine
from benchmarks.traversals.models import Output
from bt_p2p.protocol.manifest import RunManifest
from node.tui.format import format_bytes

NUM_SAMPLES = 4


class Row(BaseModel):
    """One way to generate, or the real text."""

    model_config = ConfigDict(frozen=True)

    title: str
    bits_per_byte: float
    """Under the judge, over new bytes only; mean of the outputs."""
    bits_error: float
    """Standard error of that mean."""
    distinct_word_pairs: float
    """Share of all pairs of neighbouring words that differ; words end at blanks."""
    distinct_byte_pairs: float
    traversals_per_output: float
    """0 for the real text."""
    bytes_per_traversal: float
    samples: tuple[str, ...]
    """The first outputs, each as text on one line."""


class Results(BaseModel):
    """The whole of results.json."""

    model_config = ConfigDict(frozen=True)

    model: str
    judge: str
    manifests: dict[str, RunManifest]
    """Of both, by their titles."""
    weights_sha256: dict[str, str]
    text: str
    """Where the prefixes are from."""
    text_sha256: str
    num_prefixes: int
    prefix_bytes: int
    new_bytes: int
    notes: tuple[str, ...]
    machine: Machine
    code: Code
    date: str
    command: str
    prefixes: tuple[str, ...]
    """The first ones."""
    rows: tuple[Row, ...]


def distinct_share(sequences: Iterable[Sequence[object]]) -> float:
    """Distinct pairs of neighbours, as a share of all pairs; 0 if there are none."""
    pairs = [pair for sequence in sequences for pair in pairwise(sequence)]
    return len(set(pairs)) / len(pairs) if pairs else 0.0


def one_line(data: bytes) -> str:
    """Bytes as text in which nothing moves the cursor."""
    text = data.decode("utf-8", errors="replace").replace("\n", "↵")
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def make_row(title: str, outputs: Sequence[Output], nats: Sequence[float]) -> Row:
    """Measure outputs, given what the judge said of each."""
    texts = [output.data for output in outputs]
    bits = [one / len(text) / math.log(2) for one, text in zip(nats, texts, strict=True)]
    traversals = sum(output.num_traversals for output in outputs)
    return Row(
        title=title,
        bits_per_byte=fmean(bits),
        bits_error=stdev(bits) / math.sqrt(len(bits)),
        distinct_word_pairs=distinct_share(text.split() for text in texts),
        distinct_byte_pairs=distinct_share(texts),
        traversals_per_output=traversals / len(texts),
        bytes_per_traversal=sum(map(len, texts)) / traversals if traversals else 0.0,
        samples=tuple(one_line(text) for text in texts[:NUM_SAMPLES]),
    )


def render_report(results: Results) -> str:
    """The whole of traversals.md."""
    parts = [
        "# Several bytes per traversal: what they cost in quality",
        f"`{results.model}` continues {results.num_prefixes} prefixes of {results.prefix_bytes} "
        f"bytes, evenly spread over text that was not trained on, by {results.new_bytes} bytes "
        f"each: `ar` with one byte per traversal of the chain, `draft` with the same bytes, guessed "
        f"by block 0 alone and checked up to 9 at a time, `sweep n` with n, drawn without seeing "
        f"one another. The judge is `{results.judge}`, which shares no weights with it.",
        *(f"**Note.** {note}" for note in results.notes),
        "A traversal costs the latency of the whole chain, so fewer are faster. Bits per byte are "
        "the judge's, over new bytes only, with the standard error of their mean. Come near to "
        "the real text: below it is not better, as text that repeats itself is easy to predict; "
        "few distinct pairs show that.",
        "| Way | Traversals per output | Bytes per traversal | Bits per byte | Distinct word pairs "
        "| Distinct byte pairs |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
        + "\n".join(_line(row) for row in results.rows),
        "## Samples",
        *(_sample(results, index) for index in range(len(results.prefixes))),
        "## Set-up",
        _set_up(results),
    ]
    return "\n\n".join(parts) + "\n"


def _line(row: Row) -> str:
    is_real = row.traversals_per_output == 0
    cells = [
        row.title,
        "" if is_real else f"{row.traversals_per_output:g}",
        "" if is_real else f"{row.bytes_per_traversal:.1f}",
        f"{row.bits_per_byte:.3f} ± {row.bits_error:.3f}",
        f"{row.distinct_word_pairs:.1%}",
        f"{row.distinct_byte_pairs:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def _sample(results: Results, index: int) -> str:
    named = {"prefix": results.prefixes[index]}
    named |= {row.title: row.samples[index] for row in results.rows}
    width = max(map(len, named))
    return "\n".join(["```text", *(f"{k:<{width}}  |{v}|" for k, v in named.items()), "```"])


def _set_up(results: Results) -> str:
    machine, code = results.machine, results.code
    lines = [f"`{results.command}`"]
    for title, manifest in results.manifests.items():
        shape, objective = manifest.model, manifest.objective
        lines.append(
            f"{title}: {shape.num_blocks} x {shape.layers_per_block} layers, width "
            f"{shape.d_model}, context {shape.context}, objective {objective.name}, sweeps "
            f"{objective.sweep_fraction:.0%} of the training up to {objective.sweep_max_bytes} "
            f"bytes; weights sha256 {results.weights_sha256[title][:8]}"
        )
    lines += [
        f"text: {results.text}, sha256 {results.text_sha256[:8]}",
        f"{machine.cpu}, {machine.num_cores} cores, {format_bytes(machine.ram_size_bytes)} of "
        f"memory; torch {machine.torch}, Python {machine.python}, {machine.system}",
        f"commit {code.commit[:12] or 'unknown'}{' with local changes' if code.is_dirty else ''}, "
        f"{results.date}",
        "all figures: `results.json`",
    ]
    return "\n".join(f"- {line}" for line in lines)
