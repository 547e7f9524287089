"""Results -> JSON, Markdown and a picture."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.chaos.blame import lay_to_faults
from benchmarks.chaos.config import KINDS, TITLES, ChaosConfig
from benchmarks.chaos.faults import Injected
from benchmarks.chaos.watch import Missed, Point, Sizes, drift
from benchmarks.quality.machine import this_code, this_machine
from benchmarks.replicas.report import SetUp, set_up_words, table
from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError

MAX_CE_GAP_NATS = 0.05
MAX_DRIFT = 0.05


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


def make_set_up(command: str) -> SetUp:
    """Look at this machine now."""
    now = datetime.fromtimestamp(SystemClock().now_s(), tz=UTC)
    return SetUp(
        machine=this_machine("cpu"),
        code=this_code(),
        date=now.isoformat(timespec="seconds"),
        command=command,
        texts={"train and held out": "embedded corpus"},
        note="",
    )


class SwarmResult(_Part):
    """What became of one swarm."""

    title: str
    run_id: str
    final_nats: float
    """Of the blocks as their newest replicas saved them, composed, on held-out text."""
    per_block_nats: tuple[float, ...]
    averaged: int
    """Averages adopted, summed over volunteers and their lives."""
    alone: int
    failed: int
    missed: tuple[Missed, ...]
    crashes: tuple[str, ...]
    stalls: tuple[str, ...]
    sizes: dict[str, list[Sizes]]
    curve: tuple[Point, ...]
    leftover_processes: int
    leftover_ports: int
    leftover_files: tuple[str, ...]
    """In the temporary folder that only these programs use."""

    @property
    def lost(self) -> list[Missed]:
        """Rounds in which no replica of a block got an average, though one without a fault expected it."""
        return [missed for missed in self.missed if missed.is_lost]

    @property
    def rss_drift(self) -> float | None:
        """The largest of its long-lived volunteers."""
        found = [drift([size.rss_mib for size in sizes]) for sizes in self.sizes.values()]
        return max((each for each in found if each is not None), default=None)

    @property
    def fd_drift(self) -> float | None:
        """The same of open files."""
        found = [drift([float(size.num_fds) for size in sizes]) for sizes in self.sizes.values()]
        return max((each for each in found if each is not None), default=None)


class ChaosReport(_Part):
    """The whole of the JSON file."""

    set_up: SetUp
    config: ChaosConfig
    injected: tuple[Injected, ...]
    skipped: int
    slow_leavers: tuple[str, ...]
    disturbed: SwarmResult
    twin: SwarmResult

    @property
    def causes(self) -> list[Injected | None]:
        """The fault that each lost round is laid to."""
        return lay_to_faults(self.disturbed.lost, self.injected, round_s=self.config.round_s)

    @property
    def lost_by_fault(self) -> Counter[Injected]:
        """Lost rounds of each fault that cost any."""
        return Counter(fault for fault in self.causes if fault is not None)

    def problems(self) -> list[str]:
        """Everything that keeps this run from being a success."""
        found = [f"a healthy node ended: {crash}" for crash in self.disturbed.crashes]
        found += [f"a healthy node ended in the twin: {crash}" for crash in self.twin.crashes]
        found += [f"a node hangs: {stall}" for stall in self.disturbed.stalls]
        found += [f"{name} did not end in time after SIGTERM" for name in self.slow_leavers]
        found += [
            f"{count} rounds lost by one fault: {fault.kind} at {fault.at_s:.0f} s"
            for fault, count in self.lost_by_fault.items()
            if count > 1
        ]
        num_without_cause = self.causes.count(None)
        if num_without_cause:
            found.append(f"{num_without_cause} rounds lost with no fault near")
        gap = self.disturbed.final_nats - self.twin.final_nats
        if not gap <= MAX_CE_GAP_NATS:
            found.append(f"cross entropy is {gap:+.3f} nats from the twin's")
        for swarm in (self.disturbed, self.twin):
            if swarm.leftover_processes or swarm.leftover_ports or swarm.leftover_files:
                found.append(
                    f"{swarm.title} left {swarm.leftover_processes} processes, "
                    f"{swarm.leftover_ports} ports, {len(swarm.leftover_files)} files"
                )
            if swarm.rss_drift is not None and swarm.rss_drift > MAX_DRIFT:
                found.append(f"memory of {swarm.title} grew by {swarm.rss_drift:.1%}")
        return found


def render(report: ChaosReport, name: str) -> str:
    """The whole of the Markdown file."""
    swarms = (report.disturbed, report.twin)
    lost = len(report.disturbed.lost)
    config = report.config
    problems = report.problems()
    verdict = "\n".join(f"- FAILED: {problem}" for problem in problems) or "All targets are met."

    def row(title: str, *values: object) -> list[str]:
        return [title, *map(str, values)]

    rows = [
        row("cross entropy, nats/byte", *(f"**{each.final_nats:.4f}**" for each in swarms)),
        row(
            "blocks alone",
            *(", ".join(f"{nats:.3f}" for nats in each.per_block_nats) for each in swarms),
        ),
        row("averages adopted", *(each.averaged for each in swarms)),
        row("rounds alone, by volunteers", *(each.alone for each in swarms)),
        row(
            "rounds without the expected average, by volunteers", *(each.failed for each in swarms)
        ),
        row("rounds of a block missed by somebody", *(len(each.missed) for each in swarms)),
        row("rounds of a block lost for all its replicas", *(len(each.lost) for each in swarms)),
        row("healthy nodes that ended", *(len(each.crashes) for each in swarms)),
        row("nodes that hung", *(len(each.stalls) for each in swarms)),
        row("processes left behind", *(each.leftover_processes for each in swarms)),
        row("ports left open", *(each.leftover_ports for each in swarms)),
        row("temporary files left", *(len(each.leftover_files) for each in swarms)),
        row("drift of memory, long-lived nodes", *(_percent(each.rss_drift) for each in swarms)),
        row("drift of open files", *(_percent(each.fd_drift) for each in swarms)),
    ]
    parts = [
        "# A swarm under faults",
        f"{config.num_blocks} blocks with {config.replicas} replicas each, rounds of "
        f"{config.round_s:g} s, every volunteer a real `bt-node join` behind a relay; "
        f"{len(report.injected)} faults in {config.num_faults * config.fault_every_s:.0f} s, then "
        f"{config.quiet_s:g} s of quiet. The twin is the same swarm without faults, beside it on "
        f"the same machine for the same time. The cross entropy is of the composed blocks, each as "
        f"its newest replica saved it at the end, on {config.eval_bytes:,} bytes of held-out text.",
        verdict,
        table(["", "with faults", "twin"], rows),
        "## Faults",
        table(["Fault", "injected", "rounds lost", "at most by one"], _fault_rows(report)),
        f"{report.skipped} more were due while nobody was well enough to suffer them. "
        f"{lost} rounds of a block were lost: a replica without a fault of its own expected an average, "
        f"and there was none: "
        f"{lost / max(1, len(report.injected)):.2f} for each fault; {report.causes.count(None)} with "
        f"no fault near. A lost round is laid to a fault on its block that was there, or ended at most a "
        f"round before, or else to one on another. Faults overlap: rounds are laid to faults of their "
        f"own as far as that is possible.",
        f"![Training loss against time]({name}.svg)",
        set_up_words(report.set_up, f"{name}.json"),
    ]
    return "\n\n".join(parts) + "\n"


def _fault_rows(report: ChaosReport) -> list[list[str]]:
    rows = []
    for kind in KINDS:
        faults = [fault for fault in report.injected if fault.kind == kind]
        lost = [report.lost_by_fault[fault] for fault in faults]
        if faults:
            rows.append([TITLES[kind], str(len(faults)), str(sum(lost)), str(max(lost))])
    return rows


def draw_plot(report: ChaosReport, path: Path) -> None:
    """Draw the training loss of both swarms, with a mark for each fault.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError("plots need matplotlib; run: pip install 'bt-p2p[bench]'") from exc
    with mpl.rc_context({"svg.hashsalt": "bt-p2p", "font.size": 9}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        panel = figure.subplots()
        for swarm, label in ((report.twin, "twin"), (report.disturbed, "with faults")):
            panel.plot(
                [point.at_s for point in swarm.curve],
                [point.loss for point in swarm.curve],
                label=label,
            )
        for fault in report.injected:
            panel.axvline(fault.at_s, ymax=0.04, color="#555555", lw=0.6)
        panel.set_xlabel("seconds; a mark for each fault")
        panel.set_ylabel("training loss, nats per byte")
        panel.grid(color="#dddddd", lw=0.6)
        panel.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


def _percent(share: float | None) -> str:
    return "too short to tell" if share is None else f"{share:+.1%}"
