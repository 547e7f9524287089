"""The only place where a DHT key or an averaging prefix is built.

A full run id is a name and a hash of the manifest, so two runs can never share a key, and peers
with different manifests can never average.
"""

from __future__ import annotations

RUNS_KEY = "bt-p2p.runs"
"""Dictionary of all runs in this DHT: subkey = run id, value = canonical manifest."""


def block_key(run_id: str, block: int) -> str:
    """Dictionary of the leases of one block: subkey = peer id, value = signed lease."""
    return f"{run_id}.block.{block}"


def joining_key(run_id: str) -> str:
    """Dictionary of the leases of peers that have not chosen a block yet."""
    return f"{run_id}.joining"


def averaging_prefix(run_id: str, block: int) -> str:
    """hivemind's matchmaking prefix of one block; must not contain a dot."""
    return f"{run_id}_b{block}"
