"""Results -> two pictures: cross entropy against steps, and against seconds of a worker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks.quality.figures import mean_curve
from benchmarks.quality.measured import ArmResult
from benchmarks.quality.report import STEPS_PLOT, TIME_PLOT
from benchmarks.quality.results import Results
from bt_p2p.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL_INCHES = (6.4, 4.4)
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito: told apart by everybody."""
_SHOWN_FROM_SHARE = 0.2
"""The steep start of the curves would squeeze the rest; it is cut off above."""


def draw_plots(results: Results, folder: Path) -> list[Path]:
    """Draw both pictures, a panel for each budget; returns their files, none without results.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if not results.arms:
        return []
    return [
        _draw(results, folder / STEPS_PLOT, "steps"),
        _draw(results, folder / TIME_PLOT, "seconds"),
    ]


def _draw(results: Results, path: Path, against: Literal["steps", "seconds"]) -> Path:
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError("plots need matplotlib; run: pip install 'bt-p2p[bench]'") from exc

    budgets = list(dict.fromkeys(arm.budget for arm in results.arms))
    colors = {
        name: _COLORS[index % len(_COLORS)]
        for index, name in enumerate(dict.fromkeys(arm.arm for arm in results.arms))
    }
    width, height = _PANEL_INCHES
    with mpl.rc_context({"svg.hashsalt": "bt-p2p", "font.size": 10}):
        figure = Figure(figsize=(width * len(budgets), height), layout="constrained")
        panels = figure.subplots(1, len(budgets), squeeze=False)[0]
        for panel, budget in zip(panels, budgets, strict=True):
            arms = [arm for arm in results.arms if arm.budget == budget]
            _draw_panel(panel, arms, results, against, colors)
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
    return path


def _draw_panel(
    panel: Axes,
    arms: list[ArmResult],
    results: Results,
    against: Literal["steps", "seconds"],
    colors: dict[str, str],
) -> None:
    lowest, highest = [], []
    for arm in arms:
        color = colors[arm.arm]
        for seed in arm.seeds:
            along = [
                point.step if against == "steps" else point.seconds(results.clock)
                for point in seed.curve
            ]
            panel.plot(along, [point.nats for point in seed.curve], color=color, lw=0.7, alpha=0.6)
        steps, seconds, nats = mean_curve(arm, results.clock)
        label = f"{arm.title}: {nats[-1]:.3f}"
        panel.plot(steps if against == "steps" else seconds, nats, color=color, lw=2.2, label=label)
        lowest.append(min(nats))
        shown = [nat for step, nat in zip(steps, nats, strict=True) if _is_shown(step, arm)]
        highest.append(max(shown, default=nats[-1]))
    margin = max(0.01, 0.05 * (max(highest) - min(lowest)))
    panel.set_ylim(min(lowest) - margin, max(highest) + margin)
    panel.set_xlim(left=0)
    panel.grid(color="#dddddd", lw=0.6)
    panel.set_title(f"{arms[0].budget}: {arms[0].bytes_seen / 1e6:.1f} MB seen by each block")
    panel.set_ylabel("nats per byte, validation")
    clock = "CPU seconds" if results.clock == "cpu" else "seconds"
    panel.set_xlabel(
        "steps" if against == "steps" else f"{clock} of training, slowest worker of the arm"
    )
    panel.legend(frameon=False)


def _is_shown(step: int, arm: ArmResult) -> bool:
    return step >= _SHOWN_FROM_SHARE * arm.steps
