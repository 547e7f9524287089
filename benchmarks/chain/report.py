"""Figures -> JSON, Markdown and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.chain.config import ChainConfig, Link, Way
from benchmarks.replicas.report import SetUp, set_up_words, table
from bt_p2p.errors import ConfigError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Figures(_Part):
    """One way over one link. Medians; a step is what a reader waits for one traversal's bytes."""

    setting: str
    num_blocks: int
    link: Link
    way: Way
    new_bytes: int
    num_answers: int
    bytes_per_s: float
    first_byte_ms: float
    forwarded_share: float
    """Of the traversals: those in which holders handed on to each other, not through the client."""
    traversals: float
    bytes_per_traversal: float
    step_ms: float
    traversal_ms: float
    """Of a step, what the session took: all but drawing and drafting bytes."""
    compute_ms: float
    """Of a traversal, as the holders say: the longest, or all where blocks wait for one another."""
    hop_overhead_ms: float
    trips: float | None
    """One-way trips per traversal: (traversal - compute) / one way; None without a delay."""
    cpu_ms: dict[str, float]
    """Per traversal: of this program, the holders, all their daemons, and the relays."""
    is_as_ar: bool | None
    """`draft`: whether all answers are those of `ar`, byte for byte."""
    ratio: float | None = None
    """Bytes per second over those of the baseline with the same setting, link and length."""
    net_trips: float | None = None
    """Trips by what the delay adds to a traversal of the same setting, way, length and rate."""

    @property
    def title(self) -> str:
        """A line that says how fast it is."""
        return (
            f"{self.setting}, {self.link.title}: {self.way} {self.new_bytes} bytes: "
            f"{self.bytes_per_s:.1f} bytes/s, {self.step_ms:.1f} ms a step"
        )


class Smallest(_Part):
    """One token to one holder over a stream that is open, less what the holder computed."""

    setting: str
    link: Link
    median_ms: float
    lowest_ms: float


class Crowd(_Part):
    """`ar` answers that were under way together."""

    setting: str
    link: Link
    num_sessions: int
    bytes_per_s: float
    """Of all together."""
    slowest_share: float
    """Speed of the slowest session over that of the fastest."""
    longest_gap_s: float
    """That any reader waited for a byte."""


class ChainReport(_Part):
    """The whole of chain.json."""

    set_up: SetUp
    config: ChainConfig
    notes: tuple[str, ...]
    figures: tuple[Figures, ...]
    crowds: tuple[Crowd, ...]
    smallest: tuple[Smallest, ...]
    num_bypasses: int
    """Connections between holders and client that did not go through the relays."""


class FaultFigures(_Part):
    """Answers with one kind of fault."""

    objective: str
    fault: str
    num_answers: int
    num_identical: int
    num_replaced: int
    """Answers whose last byte had another holder in place of the disturbed one."""
    errors: tuple[str, ...]
    """Of answers that came to no end."""
    median_gap_s: float
    """Longest wait for a byte in an answer, median of the answers."""
    longest_gap_s: float
    usual_gap_s: float
    """The longest wait when nothing happens."""


class FaultReport(_Part):
    """The whole of faults.json."""

    set_up: SetUp
    config: ChainConfig
    figures: tuple[FaultFigures, ...]


def compare(figures: Sequence[Figures]) -> tuple[Figures, ...]:
    """Fill in what follows from two figures."""
    found = {(one.setting, one.link, one.way, one.new_bytes): one for one in figures}
    compared = []
    for one in figures:
        base = found.get((one.setting, one.link, "baseline", one.new_bytes))
        near_link = one.link.model_copy(update={"one_way_ms": 0.0})
        near = found.get((one.setting, near_link, one.way, one.new_bytes))
        net_trips = None
        if near is not None and one.link.one_way_ms:
            net_trips = (one.traversal_ms - near.traversal_ms) / one.link.one_way_ms
        ratio = None if base is None else one.bytes_per_s / base.bytes_per_s
        compared.append(one.model_copy(update={"ratio": ratio, "net_trips": net_trips}))
    return tuple(compared)


def render_chain(report: ChainReport) -> str:
    """The whole of chain.md."""
    parts = [
        "# Generation over a chain of real holders",
        "Every holder is a process with libp2p sockets of its own, dialled as it is at 0 ms without "
        "limit, else through a relay that delays each direction by the given time and caps it at the "
        "given rate; the client's own line has no cap. `baseline` is a plain autoregressive pipeline over the same transport: "
        "the same layers as blocks that need each other (`cascade`), one byte per traversal, "
        "caches in the holders; forwarded: they hand on to each other, in blocks + 1 trips. `ar` is one byte per traversal of blocks that are asked side by "
        "side, `draft` the same answer with guesses by block 0 at the client, `sweep` many bytes "
        f"at once. Greedy; medians of {report.config.repeats} answers, each to another prompt of "
        f"{report.config.prompt_bytes} bytes, the ways in turn. All programs share the machine. Real lines also "
        "lose packets, and begin slowly after a pause: the relay does neither.",
        *(f"**Note.** {note}" for note in report.notes),
    ]
    for setting in report.config.settings:
        chosen = [one for one in report.figures if one.setting == setting.name]
        if chosen:
            parts += [f"## {setting.name}", _figures_table(chosen)]
    parts.append(
        "Step: what a reader waits for the bytes of one traversal, drawing and drafting included; "
        "compute is what holders say of it. Overhead per hop: beyond computing, the trips "
        "included. Trips: one-way, (traversal - compute) / delay; net: what the delay adds to the "
        "traversal of the same way without delay. CPU: client, holders, daemons and relays, per "
        "traversal."
    )
    if report.crowds:
        parts += ["## Sessions at once (`ar`)", _crowds_table(report.crowds)]
    parts += [
        "## The smallest request",
        "One token to one holder over a stream that is open, less what the "
        f"holder computed. Connections beside the relays: {report.num_bypasses}.",
        table(
            ["Setting", "link", "median, ms", "lowest, ms"],
            [
                [one.setting, one.link.title, f"{one.median_ms:.1f}", f"{one.lowest_ms:.1f}"]
                for one in report.smallest
            ],
        ),
    ]
    parts += ["![Speed against delay, time against length and blocks](chain.svg)"]
    parts += [set_up_words(report.set_up, "chain.json")]
    return "\n\n".join(parts) + "\n"


def _figures_table(figures: Iterable[Figures]) -> str:
    header = ["Link", "bytes", "way", "bytes/s", "against baseline", "first byte, ms"]
    header += ["traversals", "bytes per traversal", "step, ms", "compute, ms"]
    header += ["overhead per hop, ms", "trips", "net trips", "CPU, ms"]
    rows = [
        [
            one.link.title,
            str(one.new_bytes),
            _way_title(one),
            f"**{one.bytes_per_s:.1f}**",
            "" if one.ratio is None else f"{one.ratio:.2f}",
            f"{one.first_byte_ms:.0f}",
            f"{one.traversals:g}",
            f"{one.bytes_per_traversal:.1f}",
            f"{one.step_ms:.1f}",
            f"{one.compute_ms:.1f}",
            f"{one.hop_overhead_ms:.1f}",
            "" if one.trips is None else f"{one.trips:.2f}",
            "" if one.net_trips is None else f"{one.net_trips:.2f}",
            " + ".join(f"{ms:.1f}" for ms in one.cpu_ms.values()),
        ]
        for one in figures
    ]
    return table(header, rows)


def _way_title(figures: Figures) -> str:
    if figures.way == "baseline":
        return f"baseline ({figures.forwarded_share:.0%} forwarded)"
    return (
        figures.way + {None: "", True: " (as `ar`)", False: " (**not as `ar`**)"}[figures.is_as_ar]
    )


def _crowds_table(crowds: Iterable[Crowd]) -> str:
    header = ["Setting", "link", "sessions", "bytes/s together", "against one"]
    header += ["slowest / fastest", "longest wait, s"]
    crowds = list(crowds)
    single = {
        (crowd.setting, crowd.link): crowd.bytes_per_s
        for crowd in crowds
        if crowd.num_sessions == 1
    }
    rows = [
        [
            crowd.setting,
            crowd.link.title,
            str(crowd.num_sessions),
            f"**{crowd.bytes_per_s:.1f}**",
            f"{crowd.bytes_per_s / alone:.2f}"
            if (alone := single.get((crowd.setting, crowd.link)))
            else "",
            f"{crowd.slowest_share:.2f}",
            f"{crowd.longest_gap_s:.2f}",
        ]
        for crowd in crowds
    ]
    return table(header, rows)


def render_faults(report: FaultReport) -> str:
    """The whole of faults.md."""
    header = ["Objective", "fault", "answers", "identical", "replaced", "without an end"]
    header += ["usual wait, s"]
    header += ["longest wait, median, s", "longest of all, s"]
    rows = [
        [
            one.objective,
            one.fault,
            str(one.num_answers),
            f"**{one.num_identical}**",
            str(one.num_replaced),
            str(len(one.errors)),
            f"{one.usual_gap_s:.2f}",
            f"{one.median_gap_s:.2f}",
            f"{one.longest_gap_s:.2f}",
        ]
        for one in report.figures
    ]
    faults = report.config.faults
    parts = [
        "# Answers with a holder killed or frozen on the way",
        f"Every block has two holders, each a process behind a link of {faults.link.title}. While "
        f"`ar` generates {faults.new_bytes} bytes with a fixed seed, at a random moment, one of "
        f"the holders that have answered is ended by `kill -9`, or frozen by SIGSTOP until the "
        f"answer is over; then it comes back. Identical: byte for byte the undisturbed answer. "
        f"Replaced: another holder gave the last byte, so the fault was felt. "
        f"Wait: the longest that a reader waited for a byte.",
        table(header, rows),
        *(f"- {one.fault}: {error}" for one in report.figures for error in one.errors),
        set_up_words(report.set_up, "faults.json"),
    ]
    return "\n\n".join(parts) + "\n"


def draw_plot(report: ChainReport, path: Path) -> None:
    """Draw three panels: speed against delay, time against length and against blocks.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError("plots need matplotlib; run: pip install 'bt-p2p[bench]'") from exc
    first = [one for one in report.figures if one.setting == report.figures[0].setting]
    longest = max(one.new_bytes for one in first)
    farthest = max((one.link for one in first), key=lambda link: link.one_way_ms)
    links = {one.link for one in report.figures if one.link.one_way_ms}
    shared = max(
        sorted(links, key=lambda link: link.title),
        key=lambda link: len({one.num_blocks for one in report.figures if one.link == link}),
        default=Link(),
    )
    panels: list[tuple[str, str, list[tuple[Way, float, float]]]] = [
        (
            "one-way delay, ms",
            "bytes/s",
            [
                (one.way, one.link.one_way_ms, one.bytes_per_s)
                for one in first
                if one.new_bytes == longest and not one.link.mbit_per_s
            ],
        ),
        (
            f"bytes of the answer ({farthest.title})",
            "seconds",
            [
                (one.way, float(one.new_bytes), one.new_bytes / one.bytes_per_s)
                for one in first
                if one.link == farthest
            ],
        ),
        (
            f"blocks ({shared.title})",
            "ms per traversal",
            [
                (one.way, float(one.num_blocks), one.traversal_ms)
                for one in report.figures
                if one.link == shared and one.way in {"baseline", "ar"}
            ],
        ),
    ]
    with mpl.rc_context({"svg.hashsalt": "bt-p2p", "font.size": 9}):
        figure = Figure(figsize=(13, 4), layout="constrained")
        for panel, (x_title, y_title, points) in zip(
            figure.subplots(1, len(panels)), panels, strict=True
        ):
            for way in dict.fromkeys(way for way, _, _ in points):
                line = sorted({x: y for name, x, y in points if name == way}.items())
                panel.plot(*zip(*line, strict=True), marker="o", label=way)
            panel.set_xlabel(x_title)
            panel.set_ylabel(y_title)
            if y_title == "bytes/s":
                panel.set_yscale("log")
            else:
                panel.set_ylim(bottom=0)
            panel.grid(color="#dddddd", lw=0.6)
            if panel.lines:
                panel.legend(frameon=False, fontsize=7)
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
