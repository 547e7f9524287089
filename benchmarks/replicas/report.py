"""Results -> JSON, Markdown and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from benchmarks.quality.machine import Code, Machine, this_code, this_machine
from benchmarks.quality.texts import Texts
from benchmarks.replicas.config import Scenario, SimConfig
from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError
from node.tui.format import format_bytes

_PANELS = {
    "replicas": ("one", "two", "four"),
    "participation": ("one", "four", "kept_42", "dropped_42", "late_42", "late_0"),
    "outer": ("four", "outer_07_09", "outer_10_05", "four_100", "outer_07_09_100"),
    "overlap": ("takes_0", "takes_25", "takes_50", "takes_0_100", "takes_25_100", "takes_50_100"),
}
"""Scenarios drawn together, by name; those that are missing are left out."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class SetUp(_Part):
    """What was measured on what."""

    machine: Machine
    code: Code
    date: str
    command: str
    texts: dict[str, str]
    note: str


class Point(_Part):
    """Of a curve, on the start of the validation text."""

    step: int
    nats: float


class ScenarioResult(_Part):
    """One scenario and seed. Cross entropies are honest nats per byte."""

    scenario: Scenario
    seed: int
    agreed_nats: float
    """Of the last average on the test text; of replica 0 if there was none."""
    replica_nats: float
    """Of replica 0, whatever it missed."""
    bytes_scored: int
    curve: tuple[Point, ...]
    rounds: int
    attended_share: float
    averages: int
    refused: int
    worker_bytes: float
    """Weights that a replica sent, mean of the replicas."""
    bad_steps: int
    cpu_s: float


class SimReport(_Part):
    """The whole of sim.json."""

    set_up: SetUp
    config: SimConfig
    results: tuple[ScenarioResult, ...]


class VolunteerResult(_Part):
    """What a node said of itself when the time was over, before it served the evaluation."""

    block: int | None
    steps: int
    round_index: int
    rounds_averaged: int
    rounds_alone: int
    rounds_failed: int
    bytes_sent: int
    cpu_s: float
    """Of all its processes since their start: whether volunteers had the same share of the machine."""


class SwarmResult(_Part):
    """One swarm, asked over the network."""

    title: str
    run_id: str
    final_nats: float
    per_block_nats: tuple[float, ...]
    bytes_scored: int
    trained_s: float
    """From when all trained until the evaluation began."""
    volunteers: tuple[VolunteerResult, ...]


class SwarmReport(_Part):
    """The whole of swarm.json."""

    set_up: SetUp
    seconds: int
    swarms: tuple[SwarmResult, ...]


def make_set_up(texts: Texts, command: str) -> SetUp:
    """Look at this machine now."""
    now = datetime.fromtimestamp(SystemClock().now_s(), tz=UTC)
    return SetUp(
        machine=this_machine("cpu"),
        code=this_code(),
        date=now.isoformat(timespec="seconds"),
        command=command,
        texts=texts.names,
        note=texts.note,
    )


def render_sim(report: SimReport) -> str:
    """The whole of sim.md."""
    grouped: dict[str, list[ScenarioResult]] = {}
    for result in report.results:
        grouped.setdefault(result.scenario.name, []).append(result)
    reference = report.results[0].scenario
    base = fmean(result.agreed_nats for result in grouped[reference.name])
    marks = sorted({_index(report, share) for share in (0.25, 0.5, 0.75)})
    curve = report.results[0].curve
    header = ["Scenario", "round, steps", "test", f"against {reference.title}", "replica 0"]
    header += [f"step {curve[index].step:,}" for index in marks]
    header += ["attended", "averages", "sent a round", "sent in all"]
    rows = []
    for results in grouped.values():
        first = results[0]
        mean = fmean(result.agreed_nats for result in results)
        sent = fmean(result.worker_bytes for result in results)
        rows.append(
            [
                first.scenario.title,
                str(first.scenario.round_steps),
                f"**{mean:.4f}**",
                f"{mean - base:+.4f}",
                f"{fmean(result.replica_nats for result in results):.4f}",
                *(f"{fmean(each.curve[index].nats for each in results):.4f}" for index in marks),
                f"{fmean(result.attended_share for result in results):.0%}",
                f"{fmean(result.averages for result in results):.0f} of {first.rounds}",
                format_bytes(round(sent / first.rounds)),
                format_bytes(round(sent)),
            ]
        )
    seeds = ", ".join(str(seed) for seed in report.config.seeds)
    parts = [
        "# Replicas of one block, simulated",
        f"Every replica takes {report.config.steps:,} steps; equal steps are equal time on machines "
        f"of equal speed. Nats per byte of the last average on {report.results[0].bytes_scored:,} bytes of the "
        f"test text, with no target in the input; in between on {report.config.curve_bytes:,} bytes "
        f"of the validation text. A block is trained alone, so its replicas are all there is. Batches, "
        f"initial weights and learning rates are the same in all scenarios. Seeds: {seeds}.",
        "`kept`: who missed a round brings all its work next time, as bt-node does. `dropped`: that "
        "work is lost, and next time it takes the others' average. `late`: that work is averaged in "
        "one round late, and who is late still gets every average. Who missed the last rounds keeps "
        "its own weights, so replica 0 may differ from the last average. An average that comes later than "
        "its round's end was made from the weights at that end, and what it changes is added to weights "
        "that have been trained on meanwhile. Bytes are weights that one worker sends, protocol overhead left out.",
        table(header, rows),
        "![Cross entropy against steps](sim.svg)",
        set_up_words(report.set_up, "sim.json"),
    ]
    return "\n\n".join(parts) + "\n"


def render_swarm(report: SwarmReport) -> str:
    """The whole of swarm.md."""
    header = [
        "Swarm",
        "final",
        "blocks alone",
        "steps of a volunteer",
        "CPU s of a volunteer",
        "rounds",
        "averages",
    ]
    header += ["participation", "sent by a volunteer", "trained"]
    rows = []
    for swarm in report.swarms:
        volunteers = swarm.volunteers
        averaged = sum(each.rounds_averaged for each in volunteers)
        missed = sum(each.rounds_alone + each.rounds_failed for each in volunteers)
        rows.append(
            [
                swarm.title,
                f"**{swarm.final_nats:.4f}**",
                ", ".join(f"{nats:.3f}" for nats in swarm.per_block_nats),
                f"{fmean(volunteer.steps for volunteer in volunteers):,.0f}",
                f"{fmean(volunteer.cpu_s for volunteer in volunteers):.0f}",
                f"{max(volunteer.round_index for volunteer in volunteers)}",
                f"{averaged}",
                f"{averaged / max(1, averaged + missed):.0%}",
                format_bytes(round(fmean(volunteer.bytes_sent for volunteer in volunteers))),
                f"{swarm.trained_s:.0f} s",
            ]
        )
    parts = [
        "# Replicas in real swarms on one machine",
        f"Two swarms of three blocks without replicas, and one of three blocks with two replicas "
        f"each, train beside each other for {report.seconds} s: twelve volunteers share the cores, "
        f"so each has the same time and the same share of the machine, whatever else runs on it. "
        f"Nats per byte through the swarm on {report.swarms[0].bytes_scored:,} bytes of the test text, with no "
        f"target in the input. Participation: averages over rounds of all volunteers.",
        table(header, rows),
        set_up_words(report.set_up, "swarm.json"),
    ]
    return "\n\n".join(parts) + "\n"


def draw_plot(report: SimReport, path: Path) -> None:
    """Draw the curves of the first seed, a panel for each question.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError("plots need matplotlib; run: pip install 'bt-p2p[bench]'") from exc
    found = {result.scenario.name: result for result in reversed(report.results)}
    with mpl.rc_context({"svg.hashsalt": "bt-p2p", "font.size": 9}):
        figure = Figure(figsize=(5 * len(_PANELS), 4), layout="constrained")
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for panel, (title, names) in zip(panels, _PANELS.items(), strict=True):
            for result in (found[name] for name in names if name in found):
                points = result.curve[len(result.curve) // 4 :]  # the steep start is left out
                label = f"{result.scenario.title} / {result.scenario.round_steps}"
                panel.plot(
                    [point.step for point in points], [point.nats for point in points], label=label
                )
            panel.set_title(title)
            panel.set_xlabel("steps of each replica")
            panel.grid(color="#dddddd", lw=0.6)
            if panel.lines:
                panel.legend(frameon=False, fontsize=7)
        panels[0].set_ylabel("nats per byte, validation")
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


def set_up_words(set_up: SetUp, file: str) -> str:
    """Where and with what it was measured."""
    machine, code = set_up.machine, set_up.code
    lines = [
        f"`{set_up.command}`",
        f"{machine.cpu}, {machine.num_cores} cores, {format_bytes(machine.ram_size_bytes)} of "
        f"memory; torch {machine.torch}, Python {machine.python}, {machine.system}",
        f"commit {code.commit[:12] or 'unknown'}{' with local changes' if code.is_dirty else ''}, "
        f"{set_up.date}",
        f"texts: {', '.join(f'{use} {name}' for use, name in set_up.texts.items())}",
        *([set_up.note] if set_up.note else []),
        f"all figures: `{file}`",
    ]
    return "## Set-up\n\n" + "\n".join(f"- {line}" for line in lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _index(report: SimReport, share: float) -> int:
    """Of the last point of the curve up to this share of the steps."""
    return max(0, round(share * len(report.results[0].curve)) - 1)
