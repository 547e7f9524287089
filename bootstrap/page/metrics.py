"""One view as figures; docs/reference/metrics.md lists them, and a test compares.

Labels are runs and blocks, never peers: strangers come and go, and each label costs memory where
figures are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from bootstrap.page.board import SwarmView
from bootstrap.page.history import block_loss, block_round
from bt_p2p import __version__


def swarm_metrics(view: SwarmView) -> Iterator[Metric]:
    """All figures. What is not known has no sample."""
    info = GaugeMetricFamily(
        "bt_bootstrap_info", "Always 1; the labels say what runs.", labels=["version", "peer_id"]
    )
    info.add_metric([__version__, view.peer_id], 1)
    yield info
    yield GaugeMetricFamily(
        "bt_bootstrap_start_timestamp_seconds", "When it started.", value=view.started_at_s
    )
    age = GaugeMetricFamily(
        "bt_bootstrap_view_age_seconds", "Since the swarm was read; the rest is of that moment."
    )
    if view.age_s is not None:
        age.add_metric([], view.age_s)
    yield age
    yield from _of_runs(view)
    yield from _of_blocks(view)


def _of_runs(view: SwarmView) -> Iterator[Metric]:
    overviews = [run.overview for run in view.runs]
    for name, text, values in (
        ("bt_swarm_blocks", "Blocks of the model.", [len(each.blocks) for each in overviews]),
        ("bt_swarm_blocks_without_holder", "Blocks that nobody holds.",
         [len(each.uncovered) for each in overviews]),
        ("bt_swarm_blocks_with_one_holder", "Blocks that one peer alone holds.",
         [sum(len(block.holders) == 1 for block in each.blocks) for each in overviews]),
        ("bt_swarm_peers", "Live peers, those choosing a block included.",
         [each.num_peers for each in overviews]),
        ("bt_swarm_peers_joining", "Live peers that choose a block.",
         [len(each.joining) for each in overviews]),
        ("bt_swarm_invalid_records", "Records refused when the swarm was read.",
         [each.num_invalid_records for each in overviews]),
    ):  # fmt: skip
        family = GaugeMetricFamily(name, text, labels=["run"])
        for overview, value in zip(overviews, values, strict=True):
            family.add_metric([overview.manifest.run_id], value)
        yield family


def _of_blocks(view: SwarmView) -> Iterator[Metric]:
    blocks = [
        (run.overview.manifest.run_id, block) for run in view.runs for block in run.overview.blocks
    ]
    for name, text, read in (
        ("bt_block_holders", "Peers that train the block.", lambda block: len(block.holders)),
        ("bt_block_copies", "Peers that serve a copy of it.", lambda block: len(block.copiers)),
        ("bt_block_round", "Rounds of training behind its weights.", block_round),
        ("bt_block_loss_nats_per_byte", "Median loss that its holders report.", block_loss),
        ("bt_block_training_bytes_per_second", "Speed of training of its holders together.",
         lambda block: block.bytes_per_s),
    ):  # fmt: skip
        family = GaugeMetricFamily(name, text, labels=["run", "block"])
        for run_id, block in blocks:
            value = read(block)
            if value is not None:
                family.add_metric([run_id, str(block.index)], value)
        yield family
