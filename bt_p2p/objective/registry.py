"""Manifest -> objective of one block."""

from __future__ import annotations

from bt_p2p.objective.base import BlockObjective, Upstream
from bt_p2p.objective.cascade import CascadeObjective
from bt_p2p.objective.diffusion import DiffusionObjective
from bt_p2p.objective.end_to_end import EndToEndObjective
from bt_p2p.objective.plain import PlainObjective
from bt_p2p.protocol.manifest import RunManifest


def make_objective(
    manifest: RunManifest, block_index: int, upstream: Upstream | None = None
) -> BlockObjective:
    """The objective the manifest names, for block `block_index`.

    Args:
        manifest: the run.
        block_index: which block.
        upstream: what `cascade` trains on; nothing else looks at it.

    Raises:
        ConfigError: the noise levels of `diffusion` make no sense together.
    """
    match manifest.objective.name:
        case "plain":
            return PlainObjective(manifest.objective)
        case "end_to_end":
            return EndToEndObjective(manifest.objective)
        case "cascade":
            return CascadeObjective(manifest.objective, upstream)
        case "diffusion":
            return DiffusionObjective(manifest, block_index)
