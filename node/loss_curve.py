"""The loss curve of a run, as far as this computer knows it: drawn beside an exported model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bt_p2p.errors import CheckpointError, ConfigError
from bt_p2p.protocol.overview import SwarmOverview
from node.events.event import Event, RoundFinished, Started, SwarmSeen
from node.snapshot import NodeSnapshot

CURVE_NAME = "loss-curve.png"
_INCHES = (7.0, 4.4)
_DPI = 120
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito: told apart by everybody."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCurve:
    """Losses of the blocks of one run."""

    losses: dict[int, dict[int, float]]
    """Block -> round -> nats per byte."""
    source: str
    """Where it is from and what it leaves out, in one line."""


def known_curve(
    run_id: str,
    events: Iterable[Event],
    snapshot: NodeSnapshot | None,
    overview: SwarmOverview | None,
) -> LossCurve:
    """The best there is: the node's events, else its last rounds, else the holders' losses now.

    Args:
        run_id: the run.
        events: of this computer's node, whatever runs they are of.
        snapshot: of a node that runs here.
        overview: of the run's swarm.
    """
    losses = _from_events(run_id, events)
    if losses:
        return LossCurve(losses=losses, source="as this computer's node saw it (its event log)")
    if snapshot is not None and snapshot.run_id == run_id and snapshot.block is not None:
        first = snapshot.round_index - len(snapshot.loss_history) + 1
        own = {
            max(0, first + index): loss
            for index, loss in enumerate(snapshot.loss_history)
            if math.isfinite(loss)
        }
        if own:
            return LossCurve(
                losses={snapshot.block: own},
                source=f"the last {len(own)} rounds of block {snapshot.block}, of the node that runs here",
            )
    now = {
        block.index: {block.round_index: block.loss}
        for block in (overview.blocks if overview is not None else ())
        if block.loss is not None and block.round_index is not None
    }
    return LossCurve(
        losses=now,
        source="the history is not known here: no event log of this run; only the losses now",
    )


def draw_curve(curve: LossCurve, run_id: str, path: Path) -> None:
    """Write the picture.

    Raises:
        ConfigError: matplotlib is not installed.
        CheckpointError: the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError(
            "the loss curve needs matplotlib; run: pip install 'bt-p2p[plot]'"
        ) from exc
    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, (block, losses) in enumerate(sorted(curve.losses.items())):
        rounds = sorted(losses)
        axes.plot(
            rounds,
            [losses[each] for each in rounds],
            label=f"block {block}",
            color=_COLORS[number % len(_COLORS)],
            marker="o" if len(rounds) == 1 else "",
        )
    axes.set_xlabel("round")
    axes.set_ylabel("training loss, nats per byte")
    axes.set_title(f"{run_id}\n{curve.source}", fontsize=9)
    axes.grid(alpha=0.3)
    if curve.losses:
        axes.legend(loc="upper right", fontsize=8)
    else:
        axes.text(0.5, 0.5, "no loss is known", ha="center", transform=axes.transAxes)
    try:
        figure.savefig(path)
    except OSError as exc:
        raise CheckpointError(
            f"the loss curve cannot be written to {path} ({exc.strerror}); choose another folder "
            f"with --out"
        ) from exc


def _from_events(run_id: str, events: Iterable[Event]) -> dict[int, dict[int, float]]:
    """Own rounds are exact; of other blocks it is what their holders said when they were seen."""
    own: dict[int, dict[int, float]] = {}
    seen: dict[int, dict[int, float]] = {}
    is_this_run = False
    for event in events:
        match event:
            case Started():
                is_this_run = event.run_id == run_id
            case RoundFinished() if is_this_run and event.loss is not None:
                own.setdefault(event.block, {})[event.round] = event.loss
            case SwarmSeen() if is_this_run:
                _see(event, seen)
            case _:
                pass
    return {block: own.get(block) or seen[block] for block in {*own, *seen}}


def _see(event: SwarmSeen, seen: dict[int, dict[int, float]]) -> None:
    """Of each block the mean of its holders, at the newest round of them."""
    said: dict[int, list[tuple[int, float]]] = {}
    for peer in event.peers:
        if peer.block is not None and peer.loss is not None:
            said.setdefault(peer.block, []).append((peer.round, peer.loss))
    for block, values in said.items():
        newest = max(round_index for round_index, _ in values)
        seen.setdefault(block, {})[newest] = sum(loss for _, loss in values) / len(values)
