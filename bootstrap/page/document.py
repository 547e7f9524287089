"""One view as a JSON document; docs/reference/http-api.md describes it, and a test compares.

Addresses of volunteers are left out: who runs a node need not be found on a web page.
"""

from __future__ import annotations

from typing import Any

from bootstrap.page.board import RunView, SwarmView
from bootstrap.page.history import block_loss, block_round
from bt_p2p import __version__
from bt_p2p.protocol.address import parse_peer_address
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import BlockOverview
from node.manifests import join_command
from node.tui.words import is_stale

MAX_PEERS = 500
"""Listed of each run."""
MAX_COMMANDS = 4
"""Addresses for which the command to join is told."""


def swarm_document(view: SwarmView) -> dict[str, Any]:
    """Everything on the page, as JSON can say it."""
    return {
        "version": __version__,
        "now_s": round(view.now_s, 3),
        "age_s": None if view.age_s is None else round(view.age_s, 3),
        "is_stale": view.is_stale,
        "peer_id": view.peer_id,
        "addresses": list(view.addresses),
        "started_at_s": round(view.started_at_s, 3),
        "runs": [_run_document(run, view) for run in view.runs],
    }


def _run_document(run: RunView, view: SwarmView) -> dict[str, Any]:
    overview, now_s = run.overview, view.now_s
    manifest = overview.manifest
    leases = [lease for block in overview.blocks for lease in block.holders]
    leases += overview.joining
    return {
        "run_id": manifest.run_id,
        "name": manifest.name,
        "objective": manifest.objective.name,
        "is_closed": bool(manifest.owner),
        "num_blocks": manifest.model.num_blocks,
        "num_peers": overview.num_peers,
        "bytes_per_s": sum(block.bytes_per_s for block in overview.blocks),
        "uncovered": list(overview.uncovered),
        "single": [block.index for block in overview.blocks if len(block.holders) == 1],
        "invalid_records": overview.num_invalid_records,
        "join": [_command(manifest, address) for address in view.addresses[:MAX_COMMANDS]],
        "blocks": [_block_document(block) for block in overview.blocks],
        "peers": [_peer_document(lease, now_s) for lease in leases[:MAX_PEERS]],
        "peers_left_out": max(0, len(leases) - MAX_PEERS),
        "losses": [
            {"block": block.index, "points": [list(p) for p in run.history.points(block.index)]}
            for block in overview.blocks
        ],
    }


def _command(manifest: RunManifest, address: str) -> dict[str, str]:
    return {
        "command": join_command(manifest, address),
        "remark": parse_peer_address(address).remark,
    }


def _block_document(block: BlockOverview) -> dict[str, Any]:
    return {
        "block": block.index,
        "holders": len(block.holders),
        "copies": len(block.copiers),
        "round": block_round(block),
        "loss_nats_per_byte": block_loss(block),
        "bytes_per_s": block.bytes_per_s,
    }


def _peer_document(lease: Lease, now_s: float) -> dict[str, Any]:
    return {
        "peer_id": lease.peer_id,
        "block": lease.block,
        "state": lease.state,
        "round": lease.round_index,
        "loss_nats_per_byte": lease.loss,
        "bytes_per_s": lease.bytes_per_s,
        "partners": lease.partners,
        "is_relayed": lease.is_relayed,
        "is_paused": lease.is_paused,
        "is_quiet": is_stale(lease, now_s=now_s),
        "age_s": round(lease.age_s(now_s), 3),
        "expires_in_s": round(max(0.0, lease.expires_at_s - now_s), 3),
    }
