"""The run that is served, and how it is asked."""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.chain.block_rpc import BlockClient
from bt_p2p.chain.holders import LookUp
from bt_p2p.chain.modes import Precision
from bt_p2p.chain.session import ChainSession
from bt_p2p.protocol.manifest import RunManifest
from node.draft import DraftBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRun:
    """One run of a swarm."""

    manifest: RunManifest
    client: BlockClient
    """Used on the loop that serves."""
    look_up: LookUp
    precision: Precision
    draft_block: DraftBlock
    """For requests in mode `draft`."""

    def open_session(self) -> ChainSession:
        """A session of its own for each request: they fail and find other holders independently."""
        return ChainSession(self.manifest, self.client, self.look_up, precision=self.precision)
