"""Results -> Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from benchmarks.quality.figures import Comparison
from benchmarks.quality.measured import ArmResult
from benchmarks.quality.results import Results
from benchmarks.quality.texts import TEST, VALID, WIKITEXT
from node.tui.format import format_bytes

STEPS_PLOT = "quality-steps.svg"
TIME_PLOT = "quality-time.svg"
_NOTHING = "–"  # noqa: RUF001  # a dash in an empty cell
_TITLES = {VALID: "validation", TEST: "test", WIKITEXT: "WikiText-103 test"}


def render_report(results: Results) -> str:
    """The whole of quality.md."""
    parts = [
        "# Blocks trained alone, against one model trained end to end",
        _introduction(results),
        *(f"**Note.** {note}" for note in results.notes),
    ]
    if not results.arms:
        parts.append("No training is finished yet.")
        return "\n\n".join(parts) + "\n"
    pairs = list(zip(results.arms, results.comparisons, strict=True))
    texts = [text for text in _TITLES if text in results.texts]
    parts += [
        "## Cross entropy",
        "Nats per byte over the whole text, of the composition of all blocks after the last step: "
        "mean of the seeds, then each seed. The gap is to end to end after the same steps, mean of "
        "the seeds that both have; below zero is better than end to end.",
        _cross_entropy_table(pairs, texts),
        f"![Cross entropy against steps]({STEPS_PLOT})",
        "## At equal time for each worker",
        _time_words(results),
        _time_table(pairs),
        f"![Cross entropy against time]({TIME_PLOT})",
        "## What a worker holds",
        "Parameters of one worker, and the tensors of its optimizer, measured. Shares are of the "
        "end-to-end model. Every block has an embedding and a head of its own; the last worker of a "
        "cascade holds frozen copies of all blocks below.",
        _memory_table(pairs),
        "## Each block alone",
        f"Nats per byte on the {_TITLES[TEST]} text, mean of the seeds, from the first block on.",
        _block_table(pairs),
        "## Set-up",
        _set_up(results),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(results: Results) -> str:
    model = results.config.model
    return (
        f"All arms train {model.total_layers} layers in all (width {model.d_model}, "
        f"{model.num_heads} heads, context {model.context}) on the same text, with batches of "
        f"{results.config.batch_size} sequences, the same optimizer and the same seeds. A block "
        f"sees nothing of the others while it trains, but for `cascade`, where it reads the "
        f"features of frozen copies of those below. No target is ever in the input of a score; "
        f"texts are cut into windows of one context, as in `bt-node eval`."
    )


def _cross_entropy_table(
    pairs: Iterable[tuple[ArmResult, Comparison]], texts: Sequence[str]
) -> str:
    header = ["Arm", "Budget", "Steps", "MB seen", *(_TITLES[text] for text in texts)]
    header += ["test, bits/byte", "gap, validation", "gap, test"]
    rows = [
        [
            arm.title,
            arm.budget,
            f"{arm.steps:,}",
            f"{arm.bytes_seen / 1e6:.1f}",
            *(_mean_and_seeds(found.mean_nats[text], arm, text) for text in texts),
            f"{found.mean_bits_per_byte[TEST]:.4f}",
            _signed(found.gap_nats[VALID]),
            _signed(found.gap_nats[TEST]),
        ]
        for arm, found in pairs
    ]
    return _table(header, rows)


def _mean_and_seeds(mean: float, arm: ArmResult, text: str) -> str:
    each = ", ".join(f"{seed.final[text].nats:.4f}" for seed in arm.seeds)
    return f"**{mean:.4f}** ({each})"


def _time_words(results: Results) -> str:
    clock = (
        "Seconds are CPU seconds of the worker's single thread, which other programs on the "
        "machine hardly lengthen"
        if results.clock == "cpu"
        else "Seconds are those on the clock"
    )
    return (
        f"{clock}: those spent in training steps, without compiling, saving and scoring. An arm is "
        f"as slow as its slowest worker, and each worker has a machine of its own. Gaps are on the "
        f"first {results.curve_bytes:,} bytes of the validation text, to the curve of end to end "
        f"at those seconds: under the same budget, where its learning rate has not come down yet, "
        f"and to the best end-to-end training of any budget at that time, which is the harder "
        f"test. An asterisk: end to end had ended before."
    )


def _time_table(pairs: Iterable[tuple[ArmResult, Comparison]]) -> str:
    header = ["Arm", "Budget", "CPU s", "wall s", "gap, same budget", "gap, best end to end"]
    rows = [
        [
            arm.title,
            arm.budget,
            f"{found.cpu_s:,.0f}",
            f"{found.wall_s:,.0f}",
            _signed(found.equal_time.gap_nats) + ("\\*" if found.equal_time.is_at_end else ""),
            _signed(found.equal_time.best_gap_nats),
        ]
        for arm, found in pairs
    ]
    return _table(header, rows)


def _memory_table(pairs: Iterable[tuple[ArmResult, Comparison]]) -> str:
    header = ["Arm", "Parameters", "share", "Optimizer", "share", "Frozen copies"]
    rows: dict[str, list[str]] = {}
    for arm, found in pairs:
        rows[arm.arm] = [
            arm.title,
            f"{found.num_parameters:,}",
            _percent(found.parameters_share),
            format_bytes(found.optimizer_size_bytes),
            _percent(found.optimizer_share),
            format_bytes(found.upstream_size_bytes) if found.upstream_size_bytes else _NOTHING,
        ]
    return _table(header, rows.values())


def _block_table(pairs: Iterable[tuple[ArmResult, Comparison]]) -> str:
    rows = [
        [
            arm.title,
            arm.budget,
            f"{found.mean_nats[TEST]:.4f}",
            ", ".join(f"{nats:.4f}" for nats in _mean_blocks(arm)),
        ]
        for arm, found in pairs
        if arm.num_blocks > 1
    ]
    return _table(["Arm", "Budget", "composed", "blocks"], rows) if rows else _NOTHING


def _mean_blocks(arm: ArmResult) -> list[float]:
    by_block = zip(*(seed.final[TEST].per_block_nats for seed in arm.seeds), strict=True)
    return [fmean(nats) for nats in by_block]


def _set_up(results: Results) -> str:
    machine, code = results.machine, results.code
    commit = code.commit[:12] or "unknown"
    where = machine.gpu or machine.cpu
    texts = ", ".join(
        f"{facts.name} ({facts.size_bytes:,} bytes, sha256 {facts.sha256[:8]})"
        for facts in results.texts.values()
    )
    starts = [
        worker.startup_s for arm in results.arms for seed in arm.seeds for worker in seed.workers
    ]
    lines = [
        f"`{results.command}`",
        f"config `{results.config_name}`, device {results.config.device}, bf16 "
        f"{'on' if results.config.bf16 else 'off'}, compiled: "
        f"{'yes' if results.config.compile else 'no'} "
        f"(start of a worker: {fmean(starts):.0f} s on average, not counted)",
        f"{where}, {machine.num_cores} cores, {format_bytes(machine.ram_size_bytes)} of memory; "
        f"torch {machine.torch}, Python {machine.python}, {machine.system}",
        f"commit {commit}{' with local changes' if code.is_dirty else ''}, {results.date}",
        f"texts: {texts}",
        "all figures: `results.json`",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _signed(nats: float | None) -> str:
    return _NOTHING if nats is None else f"{nats:+.4f}"


def _percent(share: float | None) -> str:
    return _NOTHING if share is None else f"{share:.1%}"
