"""A model that can be asked, wherever it is."""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.chain.block_rpc import BlockClient
from bt_p2p.chain.holders import LookUp
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.loop_thread import LoopThread


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedModel:
    """A run, and how to ask its blocks."""

    manifest: RunManifest
    client: BlockClient
    """Use it on `loop`."""
    look_up: LookUp
    loop: LoopThread
