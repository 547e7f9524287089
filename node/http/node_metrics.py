"""The figures of a node; docs/reference/metrics.md lists them, and a test compares."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from bt_p2p import __version__
from node.reasons.catalogue import CATALOGUE
from node.reasons.judge import reasons_of
from node.snapshot import NODE_STATES, NodeSnapshot

_REACHABLE = ("yes", "no", "relayed", "unknown")


def node_metrics(snapshot: NodeSnapshot, *, now_s: float) -> Iterator[Metric]:
    """All figures of one snapshot. What is not known yet, or not finite, has no sample.

    Args:
        snapshot: the node at this moment.
        now_s: DHT time.
    """
    info = GaugeMetricFamily(
        "bt_node_info", "Always 1; the labels say what runs.", labels=["version", "peer_id", "run"]
    )
    info.add_metric([__version__, snapshot.peer_id, snapshot.run_id], 1)
    yield info
    yield _one_of("bt_node_state", "1 for the state of the node, 0 for the others.", "state",
                  NODE_STATES, snapshot.state)  # fmt: skip
    yield _one_of("bt_node_reachable", "1 for how others reach the node, 0 for the other ways.",
                  "how", _REACHABLE, snapshot.reachable or "unknown")  # fmt: skip
    yield _reasons(snapshot, now_s)
    rounds = CounterMetricFamily("bt_node_rounds", "Rounds since the start.", labels=["outcome"])
    rounds.add_metric(["averaged"], snapshot.rounds_averaged)
    rounds.add_metric(["alone"], snapshot.rounds_alone)
    rounds.add_metric(["failed"], snapshot.rounds_failed)
    yield rounds
    for name, text, count in (
        ("bt_node_steps", "Steps of training since the start.", snapshot.steps),
        ("bt_node_trained_bytes", "Text trained on since the start.", snapshot.bytes_trained),
        ("bt_node_sent_bytes", "Weights sent to others since the start.", snapshot.bytes_sent),
        ("bt_node_requests_served", "Requests of other peers answered.", snapshot.requests_served),
        ("bt_node_rebuilds", "Times that a broken part was cured.", snapshot.rebuilds),
    ):
        yield CounterMetricFamily(name, text, value=count)
    for name, text, value in (
        ("bt_node_block", "Index of the block trained.", snapshot.block),
        ("bt_node_round", "Rounds of training behind the weights.", snapshot.round_index),
        ("bt_node_loss_nats_per_byte", "Mean loss of the round so far.", snapshot.loss),
        ("bt_node_training_bytes_per_second", "Speed of training.", snapshot.bytes_per_s),
        ("bt_node_last_average_timestamp_seconds", "When it last averaged with others.",
         snapshot.last_average_at_s),
        ("bt_node_last_average_partners", "Other replicas in its last round.",
         snapshot.last_partners),
        ("bt_node_first_average_seconds", "From the start to the first average with others.",
         snapshot.first_average_s),
        ("bt_node_sync_done_bytes", "Weights fetched so far.", snapshot.sync_done_bytes),
        ("bt_node_sync_size_bytes", "Weights to fetch.", snapshot.sync_size_bytes),
        ("bt_node_disk_used_bytes", "All files of the node.", snapshot.disk_used_bytes),
        ("bt_node_disk_free_bytes", "Free space on its disk.", snapshot.disk_free_bytes),
        ("bt_node_start_timestamp_seconds", "When it started.", snapshot.started_at_s),
        ("bt_node_updated_timestamp_seconds", "When it last told of itself.",
         snapshot.updated_at_s),
    ):  # fmt: skip
        family = GaugeMetricFamily(name, text)
        if value is not None and math.isfinite(value):
            family.add_metric([], value)
        yield family


def _reasons(snapshot: NodeSnapshot, now_s: float) -> Metric:
    family = GaugeMetricFamily(
        "bt_node_reason", "1 for each reason that holds, 0 for the others.",
        labels=["code", "severity"],
    )  # fmt: skip
    holding = {reason.code for reason in reasons_of(snapshot, now_s=now_s)}
    for code, entry in CATALOGUE.items():
        family.add_metric([code.value, entry.severity.value], float(code in holding))
    return family


def _one_of(name: str, text: str, label: str, known: tuple[str, ...], value: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for each in known:
        family.add_metric([each], float(each == value))
    return family
