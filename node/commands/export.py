"""`bt-node export`: all blocks of a run into one folder, which needs no swarm any more."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path

import typer

from bt_p2p.chain.route import missing_blocks_message
from bt_p2p.clock import SystemClock
from bt_p2p.errors import CheckpointError, ConfigError, NoRouteError
from bt_p2p.model.block import weight_specs
from bt_p2p.protocol.overview import SwarmOverview
from node.asked_model import AskedModel
from node.download_meter import DownloadMeter
from node.events.history import read_log
from node.export import ExportFacts, ModelExport, save_export
from node.log_setup import set_up_logging
from node.loss_curve import CURVE_NAME, draw_curve, known_curve
from node.model_source import open_model
from node.snapshot import read_snapshot
from node.state_dir import StateDir
from node.sync import DownloadOptions, SyncedWeights, fetch_weights

_TELL_S = 5.0
_PATIENCE_S = 60.0


def export_model(
    *,
    out: Path,
    initial_peers: Sequence[str],
    run: str | None,
    as_json: bool,
    state_path: Path,
    debug: bool,
) -> None:
    """Fetch every block and write the folder.

    Raises:
        ConfigError: it is not clear which run is meant.
        NoRouteError: nobody trains some block.
        SwarmError: nobody gives its weights.
        CheckpointError: the folder cannot be written.
    """
    set_up_logging(is_debugging=debug)
    with open_model(None, initial_peers, StateDir(state_path), run=run) as found:
        overview = found.look_up()
        synced = fetch_all(found, overview)
        manifest = found.manifest
    model = ModelExport(
        manifest=manifest,
        weights=tuple(each.weights for each in synced),
        rounds=tuple(each.round_index for each in synced),
    )
    facts = save_export(
        out,
        model,
        exported_at_s=SystemClock().now_s(),
        sources=[each.source for each in synced],
    )
    curve = _draw_curve(out, manifest.run_id, StateDir(state_path), overview)
    _tell(out, facts, curve, as_json=as_json)


def _draw_curve(out: Path, run_id: str, state: StateDir, overview: SwarmOverview) -> str:
    """Draw the loss curve beside the model; returns what is in it, or why there is none.

    The model is there already, so nothing here makes the command fail.
    """
    try:
        events = read_log(state.events_path).events
    except (ConfigError, OSError) as exc:
        typer.echo(f"the event log is left out of the loss curve: {exc}", err=True)
        events = []
    curve = known_curve(run_id, events, read_snapshot(state.path), overview)
    try:
        draw_curve(curve, run_id, out / CURVE_NAME)
    except (CheckpointError, ConfigError) as exc:
        return f"no picture: {exc}"
    return curve.source


def fetch_all(found: AskedModel, overview: SwarmOverview) -> list[SyncedWeights]:
    """Every block, one after another, with progress on standard error."""
    missing = overview.uncovered
    if missing:
        raise NoRouteError(missing_blocks_message(overview, missing), missing_blocks=list(missing))
    return [
        _fetch_block(found, overview, block) for block in range(found.manifest.model.num_blocks)
    ]


def _fetch_block(found: AskedModel, overview: SwarmOverview, block: int) -> SyncedWeights:
    meter = DownloadMeter(SystemClock())
    download: Future[SyncedWeights] = found.loop.start(
        fetch_weights(
            found.client,
            [lease for lease in overview.blocks[block].holders if lease.state == "training"],
            expected=weight_specs(found.manifest),
            min_round_index=0,
            options=DownloadOptions(meter=meter, patience_s=_PATIENCE_S),
        )
    )
    try:
        while not wait([download], timeout=_TELL_S).done:
            typer.echo(f"block {block}: {meter.words()}", err=True)
        synced = download.result()
    finally:
        download.cancel()
    typer.echo(
        f"block {block}: round {synced.round_index} from {synced.source} ({meter.summary()})",
        err=True,
    )
    return synced


def _tell(out: Path, facts: ExportFacts, curve: str, *, as_json: bool) -> None:
    if as_json:
        document = {"folder": str(out), **facts.model_dump(), "loss_curve": curve}
        sys.stdout.write(json.dumps(document) + "\n")
        return
    typer.echo(f"run {facts.run_id}, rounds {list(facts.rounds)}, sha256 {facts.sha256}")
    typer.echo(f"loss curve ({CURVE_NAME}): {curve}")
    typer.echo(f'use it without a swarm: bt-node generate --local {out} "Once upon"')
