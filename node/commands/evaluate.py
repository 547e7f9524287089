"""`bt-node eval`: the swarm's current model on a text, through the same chain that generates."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer

from bt_p2p.chain.session import ChainSession
from bt_p2p.corpus.text import read_text
from bt_p2p.errors import ConfigError
from bt_p2p.evaluation import Score, ScoreAccumulator, scoring_windows
from bt_p2p.protocol.limits import MAX_FRAME_BODY_SIZE_BYTES, MAX_REQUEST_SEQUENCES
from bt_p2p.protocol.manifest import VOCAB_SIZE, RunManifest
from node.asked_model import AskedModel
from node.log_setup import set_up_logging
from node.model_source import open_model
from node.state_dir import StateDir
from node.tui.terminal import make_console

_NUM_ATTEMPTS_TIMEOUT_S = 600.0


def evaluate_file(
    *,
    file: Path,
    local: Path | None,
    initial_peers: Sequence[str],
    run: str | None,
    max_bytes: int | None,
    as_json: bool,
    state_path: Path,
    debug: bool,
) -> None:
    """Score a text and print the result.

    Raises:
        ConfigError: the text is missing or too short.
        ChainError: a block has no holder.
    """
    set_up_logging(is_debugging=debug)
    data = read_text(file)
    if len(data) < 2:
        raise ConfigError(f"text {file} has {len(data)} bytes, need at least 2 to score")
    with open_model(local, initial_peers, StateDir(state_path), run=run) as found:
        score = score_model(found, data[:max_bytes])
        document = {
            "run_id": found.manifest.run_id,
            "file": str(file),
            "bytes_scored": score.num_bytes,
            "nats_per_byte": score.final_nats,
            "bits_per_byte": score.bits_per_byte,
            "nats_per_byte_by_block": list(score.per_block_nats),
        }
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        return
    for index, nats in enumerate(score.per_block_nats):
        typer.echo(f"block {index} alone  {nats:.4f} nats/byte")
    typer.echo(
        f"final          {score.final_nats:.4f} nats/byte = {score.bits_per_byte:.4f} bits/byte, "
        f"over {score.num_bytes:,} bytes"
    )


def score_model(found: AskedModel, data: bytes) -> Score:
    """Cross entropy of a text under a model, with progress on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    manifest = found.manifest
    session = ChainSession(manifest, found.client, found.look_up)
    accumulator = ScoreAccumulator(manifest.model.num_blocks)
    text = np.frombuffer(data, dtype=np.uint8)
    console = make_console(stderr=True)
    columns = (TextColumn("scoring"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("scoring", total=len(data))
        for batch in scoring_windows(
            text, manifest.model.context, batch_size=windows_per_request(manifest)
        ):
            traversal = found.loop.run(
                session.traverse(batch.inputs_NT, start=0, mode="read"),
                timeout_s=_NUM_ATTEMPTS_TIMEOUT_S,
            )
            accumulator.add(traversal.per_block_log_probs, batch.targets_NT, batch.mask_NT)
            progress.advance(task, int(batch.mask_NT.sum()))
    return accumulator.score()


def windows_per_request(manifest: RunManifest) -> int:
    """As many windows as one answer may hold."""
    window_bytes = manifest.model.context * VOCAB_SIZE * 4
    return max(1, min(MAX_REQUEST_SEQUENCES, MAX_FRAME_BODY_SIZE_BYTES // window_bytes))
