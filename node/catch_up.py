"""How a replica that is behind takes the weights of others, and what the user sees of it."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Sequence

from bt_p2p.errors import SwarmError
from bt_p2p.model.block import weight_specs
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import MAX_ROUND_LAG
from bt_p2p.swarm.block_rpc import HivemindBlockClient
from node.download_meter import DownloadMeter
from node.download_pace import DownloadPace
from node.events.event import Synced, shortened
from node.joined import Joined
from node.keeper import LeaseKeeper
from node.partial_download import PartialFiles
from node.reasons.code import ReasonCode
from node.stop import StopRequest
from node.sync import DownloadOptions, SyncedWeights, donors, fetch_weights
from node.tui.progress import JoinReporter

_MAX_ATTEMPTS = 3
_RETRY_S = 3.0
_PATIENCE_S = 120.0
"""Waited for donors that are busy with other newcomers."""
_LOOK_S = 0.25
"""A stop is noticed within this time."""
_TELL_S = 5.0
"""Progress is printed this often."""


class CatchUp:
    """Downloads for one replica, in the thread that trains it.

    Attributes:
        bytes_received: in downloads that ended well.
    """

    def __init__(
        self,
        joined: Joined,
        block: int,
        keeper: LeaseKeeper,
        reporter: JoinReporter,
        stop: StopRequest,
    ) -> None:
        """Fetch nothing yet.

        Args:
            joined: the node.
            block: of which block.
            keeper: knows the replicas.
            reporter: tells the user.
            stop: looked at wherever something is waited for.
        """
        self._manifest = joined.manifest
        self._peer = joined.peer
        self._record = joined.record
        self._clock = joined.clock
        self._block = block
        self._keeper = keeper
        self._reporter = reporter
        self._stop = stop
        self.bytes_received = 0
        self._pace = DownloadPace(joined.manifest.rounds.round_s)
        folder = joined.state_dir.checkpoint_path(joined.manifest.run_id, block).parent
        self._partial = PartialFiles(folder, block)

    def fetch(self, round_index: int) -> SyncedWeights | None:
        """The weights of replicas that are ahead of a round; None if none is, or if it must wait.

        Goes on after a download that took so long that it is behind already, but not for ever.

        Raises:
            SwarmError: there are replicas ahead, but none gives its weights, try after try.
        """
        found: SyncedWeights | None = None
        while self._pace.may_download(self._clock.monotonic_s()) and not self._stop.is_requested:
            started_s = self._clock.monotonic_s()
            synced = self._try_several_times(round_index)
            if synced is None:
                break
            found, round_index = synced, synced.round_index
            newest = self._keeper.view().blocks[self._block].round_index or 0
            now_s = self._clock.monotonic_s()
            lag = newest - round_index
            self._pace.downloaded(took_s=now_s - started_s, lag=lag, now_s=now_s)
            if lag <= MAX_ROUND_LAG:
                break
        self._record.show(ReasonCode.LINK_TOO_SLOW, self._pace.problem)
        self._record.clear(ReasonCode.WEIGHTS_NOT_GIVEN)
        return found

    def fetch_from(self, peer_ids: Collection[str]) -> SyncedWeights | None:
        """The newest weights of some replicas, which are near; None if none of them gives any."""
        holders = self._keeper.view().blocks[self._block].holders
        try:
            return self._download(
                [lease for lease in holders if lease.peer_id in peer_ids], min_round_index=0
            )
        except SwarmError as exc:
            self._reporter.line(str(exc))
            return None

    def _try_several_times(self, round_index: int) -> SyncedWeights | None:
        for attempt in range(_MAX_ATTEMPTS):
            try:
                return self._try(round_index)
            except SwarmError as exc:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise
                self._reporter.line(f"{exc}; trying again")
                self._stop.event.wait(_RETRY_S)
        return None

    def _try(self, round_index: int) -> SyncedWeights | None:
        ahead = donors(
            self._keeper.view(),
            block=self._block,
            peer_id=self._peer.peer_id,
            round_index=round_index,
        )
        if not ahead:
            self._partial.clear()
            return None
        return self._download(ahead, min_round_index=round_index + 1)

    def _download(
        self, candidates: Sequence[Lease], *, min_round_index: int
    ) -> SyncedWeights | None:
        """None when a stop was requested meanwhile."""
        meter = DownloadMeter(self._clock)
        download = self._peer.loop.start(
            fetch_weights(
                HivemindBlockClient(self._peer.p2p),
                candidates,
                expected=weight_specs(self._manifest),
                min_round_index=min_round_index,
                options=DownloadOptions(meter=meter, partial=self._partial, patience_s=_PATIENCE_S),
                clock=self._clock,
            )
        )
        try:
            self._watch(download, meter)
        finally:
            self._record.update(sync="", sync_done_bytes=0, sync_size_bytes=0)
        if not download.done():
            download.cancel()
            return None
        synced = download.result()
        self.bytes_received += meter.fetched_bytes
        self._record.tell(
            Synced(
                at_s=self._clock.now_s(),
                block=self._block,
                round=synced.round_index,
                size_bytes=meter.fetched_bytes,
                source=shortened(synced.source),
            )
        )
        for reason in synced.left:
            self._reporter.line(f"did without {reason}")
        self._reporter.line(
            f"took round {synced.round_index} of block {self._block} from {synced.source} "
            f"({meter.summary()})"
        )
        return synced

    def _watch(
        self, download: concurrent.futures.Future[SyncedWeights], meter: DownloadMeter
    ) -> None:
        """Show how far it is, until it ends or a stop is requested."""
        told_at_s = self._clock.monotonic_s()
        while not concurrent.futures.wait([download], timeout=_LOOK_S).done:
            if self._stop.is_requested:
                return
            words = meter.words()
            self._record.update(
                state="syncing",
                sync=words,
                sync_done_bytes=meter.done_bytes,
                sync_size_bytes=meter.size_bytes,
            )
            if self._clock.monotonic_s() - told_at_s >= _TELL_S:
                told_at_s = self._clock.monotonic_s()
                self._reporter.line(f"syncing: {words}")
