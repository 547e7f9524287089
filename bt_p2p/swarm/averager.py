"""The `GroupAverager` port over hivemind's `DecentralizedAverager`.

hivemind reports success after a partial all-reduce, and leaves its tensors half changed. So the
tensors it works on are buffers of their own, and its child refuses a round in which any part of any
member was missing.

Where weights travel uncompressed, all members end with the same bits, so that newcomers can take the
parts of one block from all of them. See docs/design/0012-newcomer-sync.md.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import functools
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import hivemind
import hivemind.averaging.averager
import torch
from hivemind.averaging.allreduce import AveragingMode
from hivemind.averaging.averager import DecentralizedAverager
from hivemind.averaging.control import StepControl
from hivemind.averaging.group_info import GroupInfo
from hivemind.averaging.matchmaking import MatchmakingException
from hivemind.averaging.partition import AllreduceException
from hivemind.compression import CompressionBase, Float16Compression, NoCompression
from hivemind.p2p import PeerID
from hivemind.utils import MPFuture, get_dht_time
from hivemind.utils.serializer import MSGPackSerializer
from torch import Tensor

from bt_p2p.averaging.admission import is_finite
from bt_p2p.averaging.averager import GroupAverage, PartnerReport
from bt_p2p.averaging.schedule import average_timeout_s, late_partner_s, matchmaking_s
from bt_p2p.errors import (
    AveragingError,
    GroupNotFormedError,
    OwnWeightsError,
    ProtocolError,
    RoundFailedError,
    RoundTimeoutError,
    SwarmError,
)
from bt_p2p.protocol import wire
from bt_p2p.protocol.keys import averaging_prefix
from bt_p2p.protocol.limits import START_TIMEOUT_S, STOP_TIMEOUT_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.membership import check_membership
from bt_p2p.swarm.children import live_with_parent
from bt_p2p.swarm.reducing import (
    CompleteRunner,
    MemberFailedError,
    SelectiveMatchmaking,
    StepResult,
)

logger = logging.getLogger(__name__)

BEGIN_TIMEOUT_S = 3.0
"""The averager's process takes a step within this time, under load too."""
_OWN_END = 0.85
"""The exchange ends itself after this share of its time, so that it can still tell who was late."""
_MAX_REPORT_SIZE_BYTES = 256
_COMPRESSIONS: dict[str, type[CompressionBase]] = {
    "none": NoCompression,
    "float16": Float16Compression,
}


class _CompleteAverager(DecentralizedAverager):
    """A `DecentralizedAverager` whose steps fail when the average is not complete."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        *args: Any,
        compression: CompressionBase,
        admits: Callable[[PeerID, bytes], bool],
        **kwargs: Any,
    ) -> None:
        """As in hivemind, and what both processes see besides: a flag, and the round's start."""
        self.has_weights = multiprocessing.Value(ctypes.c_bool, False)
        self.starts = tuple(torch.zeros_like(tensor) for tensor in tensors)
        for start in self.starts:
            start.share_memory_()  # type: ignore[no-untyped-call]
        self._admits = admits
        self._trust: Mapping[str, float] = {}
        self._runner: Any = None  # of the round that goes on, in the child
        self._is_exact = isinstance(compression, NoCompression)
        super().__init__(tensors, *args, compression=compression, **kwargs)

    def run(self) -> None:
        """Runs in the child."""
        live_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        hivemind.averaging.averager.Matchmaking = SelectiveMatchmaking
        super().run()

    def begin_step(
        self, gather: bytes, *, ends_at_s: float, deadline_s: float, trust: Mapping[str, float]
    ) -> StepControl:
        """As `step` of hivemind 1.1.12, which waits for its child without a deadline.

        Raises:
            SwarmError: the child does not take the step.
        """
        control = StepControl(
            scheduled_time=ends_at_s,
            deadline=deadline_s,
            allow_retries=False,
            weight=1.0,
            data_for_gather=self.serializer.dumps(
                [self.bandwidth, self.mode.value, self.serializer.dumps(gather)]
            ),
        )
        attachments = MPFuture()
        try:
            arguments = {"step": control, "future_for_init": attachments, "trust": dict(trust)}
            self._outer_pipe.send(("_step", [], arguments))
            trigger, cancel = attachments.result(BEGIN_TIMEOUT_S)
        except (TimeoutError, OSError) as exc:
            attachments.cancel()
            control.attach(attachments, attachments)  # its destructor asks for them
            raise SwarmError("the averaging process does not listen") from exc
        control.attach(trigger, cancel)
        return control

    async def _shutdown(self, timeout: float | None) -> None:  # noqa: ASYNC109 - hivemind's own
        """As in hivemind 1.1.12, which takes futures of groups for groups, and fails in mid-average."""
        del timeout  # there is nothing to wait for
        await self.remove_p2p_handlers(self._p2p, namespace=self.prefix)
        for running in self._running_groups.values():
            if not running.done():
                running.cancel()
            elif not running.cancelled() and running.exception() is None:
                running.result().finalize(cancel=True)

    async def _step(self, *, trust: Mapping[str, float], **kwargs: Any) -> None:
        """As in hivemind; peers without trust are not met."""
        self._trust = trust
        self._matchmaking.admits = self._admits
        self._matchmaking.refuses = lambda peer_id: self._trust.get(str(peer_id), 1.0) <= 0
        await super()._step(**kwargs)

    async def _aggregate_with_group(self, group_info: GroupInfo, **kwargs: Any) -> StepResult:
        """As in hivemind, and what this replica saw of the others."""
        self._runner = None
        try:
            gathered = await super()._aggregate_with_group(group_info, **kwargs)
        except MatchmakingException as exc:
            if self._runner is None:
                raise
            raise MemberFailedError(str(exc), self._runner.blamed(), self._runner.late()) from exc
        return StepResult(
            gathered=gathered, shares=self._runner.shares, observations=self._runner.observations()
        )

    async def _run_allreduce_inplace_(
        self,
        tensors: Sequence[Tensor],
        group_info: GroupInfo,
        group_id: bytes | None = None,
        **kwargs: Any,
    ) -> None:
        """As in hivemind 1.1.12, but it keeps the runner to see afterwards who failed."""
        if not self.has_weights.value:
            raise AllreduceException("the round was given up before its weights were brought")
        group_id = group_info.group_id if group_id is None else group_id
        self._runner = runner = CompleteRunner(
            starts=self.starts,
            trust=self._trust,
            p2p=self._p2p,
            servicer_type=type(self),
            prefix=self.prefix,
            tensors=tensors,
            group_id=group_id,
            ordered_peer_ids=group_info.peer_ids,
            is_exact=self._is_exact,
            **kwargs,
        )
        if runner.modes[group_info.peer_ids.index(self.peer_id)] == AveragingMode.AUX:
            raise AllreduceException("auxiliary members are not used")
        self._running_groups[group_id].set_result(runner)
        updates = [update async for update in runner]
        if runner.tensor_part_container.failed_size:
            raise AllreduceException("a member did not return its share of the average")
        if runner.banned_senders:
            lost = ", ".join(f"…{str(peer)[-6:]}" for peer in runner.banned_senders)
            raise AllreduceException(f"lost {lost} before its weights were complete")
        for tensor, update in zip(tensors, updates, strict=True):
            if runner.is_exact:
                tensor.copy_(update)
            else:
                tensor.add_(update)


class HivemindAverager:
    """Averages one block with its other replicas; see `averaging.averager.GroupAverager`."""

    def __init__(
        self,
        dht: hivemind.DHT,
        manifest: RunManifest,
        block: int,
        shapes: Mapping[str, Sequence[int]],
        membership: bytes | None = None,
    ) -> None:
        """Fork the averager's process; call in the main thread, before CUDA and other threads.

        Args:
            dht: a started DHT.
            manifest: the run.
            block: which block.
            shapes: shape of every weight by name; all replicas have the same.
            membership: shown to the others of a closed run.

        Raises:
            SwarmError: the process does not start.
        """
        self._membership = membership
        self._buffers = {name: torch.zeros(tuple(shape)) for name, shape in shapes.items()}
        size_bytes = sum(
            buffer.numel() * buffer.element_size() for buffer in self._buffers.values()
        )
        search_s = matchmaking_s(manifest.rounds.round_s)
        self._late_s = late_partner_s(manifest.rounds.round_s)
        timeout_s = average_timeout_s(size_bytes, 2, manifest.rounds.round_s)
        self._averager = _CompleteAverager(
            list(self._buffers.values()),
            dht,
            start=False,
            prefix=averaging_prefix(manifest.run_id, block),
            min_matchmaking_time=search_s,
            request_timeout=search_s / 2,
            compression=_COMPRESSIONS[manifest.rounds.compression](),
            admits=functools.partial(_is_member, manifest),
            allow_state_sharing=False,
            next_chunk_timeout=timeout_s / 3,
            sender_timeout=timeout_s / 3,
            reducer_timeout=timeout_s * 2 / 3,
            allreduce_timeout=_OWN_END * timeout_s,
            shutdown_timeout=STOP_TIMEOUT_S / 4,
            client_mode=False,  # a client of the DHT is reached through a relay
        )
        handler = signal.getsignal(signal.SIGINT)
        try:
            self._averager.run_in_background(await_ready=True, timeout=START_TIMEOUT_S)
        except TimeoutError as exc:
            self._averager.kill()
            raise SwarmError(
                f"the averaging process does not start within {START_TIMEOUT_S:g} s"
            ) from exc
        finally:
            signal.signal(signal.SIGINT, handler)  # hivemind leaves it ignored

    def begin(
        self, report: PartnerReport, *, ends_at_s: float, trust: Mapping[str, float] | None = None
    ) -> HivemindPendingAverage:
        """Start looking for a group that averages at a moment.

        Raises:
            SwarmError: the averager's process is gone, or does not listen.
        """
        if not self._averager.is_alive():
            raise SwarmError("the averaging process has ended")
        said: dict[str, object] = {"round": report.round_index}
        if self._membership is not None:
            said["member"] = self._membership
        control = self._averager.begin_step(
            wire.pack(said),
            ends_at_s=ends_at_s,
            deadline_s=max(ends_at_s, get_dht_time()) + self._late_s,
            trust=trust or {},
        )
        return HivemindPendingAverage(self._averager, self._buffers, control)

    def ask(self, *, timeout_s: float) -> None:
        """See whether the averager's process takes requests.

        Raises:
            SwarmError: it is gone, or does not listen.
        """
        if not self._averager.is_alive():
            raise SwarmError("the averaging process has ended")
        try:
            self._averager.get_group_bits(wait=False).result(timeout_s)
        except (TimeoutError, OSError) as exc:
            raise SwarmError(
                f"the averaging process does not answer within {timeout_s:g} s"
            ) from exc

    def stop(self) -> None:
        """End the averager's process; idempotent."""
        if self._averager.is_alive():
            with contextlib.suppress(OSError, ValueError):  # its pipe is closed already
                self._averager.shutdown()
            self.kill()

    def kill(self) -> None:
        """End the averager's process at once, where the daemon that it would talk to is gone."""
        if self._averager.is_alive():
            self._averager.kill()
            self._averager.join(1)


class HivemindPendingAverage:
    """One step of hivemind's averager; see `averaging.averager.PendingAverage`."""

    def __init__(
        self, averager: _CompleteAverager, buffers: dict[str, Tensor], control: StepControl
    ) -> None:
        """Use `HivemindAverager.begin`."""
        self._averager = averager
        self._buffers = buffers
        self._control = control

    def finish(
        self,
        weights: Mapping[str, Tensor],
        *,
        start: Mapping[str, Tensor],
        num_samples: int,
        timeout_s: float,
    ) -> GroupAverage:
        """Bring the weights, wait for the group, and return its average."""
        if not is_finite(weights):
            self.cancel()
            raise OwnWeightsError("own weights are not finite, so they were not sent")
        deadline_s = time.monotonic() + timeout_s
        with self._locked_buffers(timeout_s):
            for (name, buffer), begun in zip(
                self._buffers.items(), self._averager.starts, strict=True
            ):
                buffer.copy_(weights[name])
                begun.copy_(start[name])
            self._averager.has_weights.value = True
        self._control.weight = float(max(1, num_samples))
        self._control.allow_allreduce()
        try:
            result = self._control.result(max(0.0, deadline_s - time.monotonic()))
        except TimeoutError as exc:
            self.cancel()
            raise RoundTimeoutError(f"the average took over {timeout_s:.0f} s") from exc
        except Exception as exc:  # hivemind raises many kinds here
            raise _averaging_error(exc) from exc
        finally:
            self._averager.has_weights.value = False
        with self._locked_buffers(max(1.0, deadline_s - time.monotonic())):
            averaged = {name: buffer.clone() for name, buffer in self._buffers.items()}
        return GroupAverage(
            weights=averaged,
            partners=self._read_reports(result.gathered),
            shares=result.shares,
            observations=result.observations,
        )

    @contextlib.contextmanager
    def _locked_buffers(self, timeout_s: float) -> Iterator[None]:
        """Keep the child off the buffers; it holds this lock while it exchanges them."""
        lock = self._averager.lock_averaged_tensors
        if not lock.acquire(timeout=timeout_s):
            self.cancel()
            raise RoundTimeoutError("the exchange of an earlier round has not ended yet")
        try:
            yield
        finally:
            lock.release()

    def cancel(self) -> None:
        """Give up the round.

        hivemind's own order is the other way round: its child wakes, sees a step that is not
        cancelled yet, and takes part in the average with whatever the buffers hold.
        """
        if self._control.done():
            return
        MPFuture.cancel(self._control)
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled twice
            self._control._trigger.cancel()
            self._control._cancel.set_result(None)

    def _read_reports(self, gathered: Mapping[Any, Any]) -> dict[str, PartnerReport]:
        own_id = str(self._averager.peer_id)
        reports: dict[str, PartnerReport] = {}
        for peer_id, data in gathered.items():
            if str(peer_id) == own_id:
                continue
            try:
                if not isinstance(data, bytes):
                    raise RoundFailedError(f"replica …{str(peer_id)[-6:]} sent no report")
                fields = wire.unpack_map(data, max_size_bytes=_MAX_REPORT_SIZE_BYTES)
            except ProtocolError as exc:
                raise RoundFailedError(f"replica …{str(peer_id)[-6:]}: {exc}") from exc
            round_index = fields.get("round")
            if not isinstance(round_index, int) or not 0 <= round_index < 2**40:
                raise RoundFailedError(f"replica …{str(peer_id)[-6:]} sent round {round_index!r}")
            reports[str(peer_id)] = PartnerReport(round_index=round_index)
        return reports


def _is_member(manifest: RunManifest, peer_id: PeerID, gather: bytes) -> bool:
    """Whether a peer, by what it wants to tell its group, may average in this run."""
    if not manifest.owner:
        return True
    try:
        _, _, said = MSGPackSerializer.loads(gather)
        report = wire.unpack_map(
            MSGPackSerializer.loads(said), max_size_bytes=_MAX_REPORT_SIZE_BYTES
        )
        check_membership(manifest, str(peer_id), report.get("member"), now_s=get_dht_time())
    except Exception as exc:  # noqa: BLE001 - whatever a stranger's bytes raise
        logger.info("…%s may not average in this closed run: %s", str(peer_id)[-6:], exc)
        return False
    return True


def _averaging_error(error: BaseException) -> AveragingError:
    text = str(error).strip().removeprefix("Unable to run All-Reduce:").strip()
    if "could not find a group" in text:
        return GroupNotFormedError("no other replica was there in time")
    text = text or "a member was too slow or went away"
    if isinstance(error, MemberFailedError):
        return RoundFailedError(text, blamed=error.blamed, late=error.late)
    return RoundFailedError(text)
