"""One all-reduce of hivemind, changed to merge robustly and to be complete or nothing.

Runs in the averager's process. What it sees of other members is told to the node's process with the
result of the step, or with its error.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hivemind.averaging.allreduce import AllReduceRunner
from hivemind.averaging.matchmaking import Matchmaking, MatchmakingException
from hivemind.averaging.partition import (
    AllreduceException,
    BannedException,
    TensorPartContainer,
    TensorPartReducer,
)
from hivemind.compression import (
    NoCompression,
    deserialize_torch_tensor,
    serialize_torch_tensor,
)
from hivemind.p2p import PeerID
from hivemind.proto import averaging_pb2
from hivemind.utils import get_dht_time
from torch import Tensor

from bt_p2p.averaging.averager import Share
from bt_p2p.averaging.evidence import late_senders
from bt_p2p.averaging.merge import Observation, ShareMerger
from bt_p2p.protocol.limits import MAX_REMEMBERED_PEERS, STRANGER_PENALTY_S

logger = logging.getLogger(__name__)


class MemberFailedError(MatchmakingException):
    """A step failed; `blamed` and `late` say by whom, if that is known, as in `RoundFailedError`."""

    def __init__(
        self, message: str, blamed: Mapping[str, str], late: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(message, blamed, late)
        self.blamed = blamed
        self.late = late

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What a step of the averager's process ends with."""

    gathered: Mapping[Any, Any]
    """By hivemind's peer ids, what each member said."""
    shares: tuple[Share, ...]
    observations: dict[str, Observation]


class RobustReducer(TensorPartReducer):
    """Merges the parts of one share as `averaging.merge` says.

    hivemind's own sum is kept up beside it, since its bookkeeping is part of it; it is not used.
    """

    def __init__(
        self, part_shapes: Sequence[torch.Size], starts: Sequence[Tensor], merger: ShareMerger
    ) -> None:
        """As in hivemind.

        Args:
            part_shapes: of the parts of this share.
            starts: the same parts of the last agreed weights.
            merger: for all members, in the order of their index.
        """
        self._starts = starts
        self._merger = merger
        self._received: dict[tuple[int, int], tuple[Tensor, float]] = {}
        self._num_received = [0] * merger.num_members
        self.malformed: dict[int, str] = {}
        """By index of the sender, what was wrong with a part of it."""
        super().__init__(part_shapes, merger.num_members)

    async def accumulate_part(
        self, sender_index: int, part_index: int, tensor_part: Tensor, weight: float = 1.0
    ) -> Tensor:
        """As in hivemind; `hardening` checks the part on the way."""
        self._received[part_index, sender_index] = tensor_part, weight
        self._num_received[sender_index] = part_index + 1
        try:
            merged: Tensor = await super().accumulate_part(
                sender_index, part_index, tensor_part, weight=weight
            )
        except BannedException:
            raise
        except AllreduceException as exc:
            if not self.finished.is_set():
                self.malformed[sender_index] = str(exc)
            raise
        return merged

    def check_current_part_finished(self) -> None:
        """As in hivemind, but for the merge, which takes all members or none."""
        if self.current_part_accumulated_from != self.num_current_senders:
            return
        index = self.current_part_index
        found = [self._received.pop((index, sender), None) for sender in range(self.num_senders)]
        heard = [each for each in found if each is not None]
        if self.num_current_senders == self.num_senders == len(heard):
            parts, weights = zip(*heard, strict=True)
            merged = self._merger.merge(parts, weights, self._starts[index])
        else:
            merged = self._starts[index]  # the round fails; only the bookkeeping goes on
        self.current_part_future.set_result(merged)
        self.reset_accumulators()

    @property
    def progress(self) -> tuple[int, ...]:
        """Parts that have come, by index of the sender."""
        return tuple(self._num_received)

    def observations(self) -> dict[int, Observation]:
        """Of the other members by index, when all parts are merged."""
        return self._merger.observations()


class CompleteRunner(AllReduceRunner):
    """An all-reduce that hands out no share of the average once a member is lost.

    hivemind goes on without the member. Who had heard it completely would then take that share for
    a whole one, and mix it with shares that still contain the member.

    hivemind also sends each member what the average changes of its own share, and the sum is rounded
    differently by each. `is_exact` sends the average itself. It is for uncompressed weights: a codec
    would lose more of an average than of a change.
    """

    def __init__(
        self,
        *,
        starts: Sequence[Tensor],
        trust: Mapping[str, float],
        is_exact: bool,
        **kwargs: Any,
    ) -> None:
        """As in hivemind.

        Args:
            starts: the last agreed weights, like `tensors`.
            trust: how much samples of peers count; those not named count fully.
            is_exact: what it yields are averages, else changes.
            kwargs: of hivemind.
        """
        super().__init__(**kwargs)
        self.is_exact = is_exact
        own_index = self.ordered_peer_ids.index(self.peer_id)
        layout = {
            key: value
            for key, value in kwargs.items()
            if key in ("compression", "part_size_bytes", "tensor_infos")
        }
        # cut exactly as the weights are
        cut = TensorPartContainer(starts, self.peer_fractions, **layout)
        self.shares = tuple(
            Share(peer_id=str(peer_id), num_elements=sum(part.numel() for part, _ in parts))
            for peer_id, parts in zip(self.ordered_peer_ids, cut._input_parts_by_peer, strict=True)
        )
        """Who makes what."""
        merger = ShareMerger(
            [trust.get(str(peer_id), 1.0) for peer_id in self.sender_peer_ids], own_index
        )
        self.tensor_part_reducer.finished.set()  # hivemind's own is not used
        self.tensor_part_reducer: RobustReducer = RobustReducer(
            tuple(part.shape for part in self.parts_for_local_averaging),
            cut.get_raw_input_parts(own_index),
            merger,
        )

    async def _accumulate_parts_streaming(
        self, stream: AsyncIterator[Any], sender_index: int
    ) -> AsyncIterator[Any]:
        accumulate = self._exact_parts if self.is_exact else super()._accumulate_parts_streaming
        async for message in accumulate(stream, sender_index):
            if self.banned_senders:
                raise AllreduceException("a member was lost")
            yield message

    async def _exact_parts(
        self, stream: AsyncIterator[Any], sender_index: int
    ) -> AsyncIterator[Any]:
        """As `_accumulate_parts_streaming` of hivemind 1.1.12, without the subtraction."""
        part_index = 0
        try:
            async for message in stream:
                part = deserialize_torch_tensor(message.tensor_part)
                average = await self.tensor_part_reducer.accumulate_part(
                    sender_index, part_index, part, weight=message.weight
                )
                part_index += 1
                yield averaging_pb2.AveragingData(
                    code=averaging_pb2.AVERAGED_PART,
                    tensor_part=serialize_torch_tensor(average, NoCompression.compression_type),
                )
        finally:
            if part_index != self.tensor_part_reducer.num_parts:
                await self._ban_sender(self.sender_peer_ids[sender_index])

    async def _communicate_with_peer(self, peer_id: PeerID) -> None:
        if peer_id != self.peer_id or not self.is_exact:
            await super()._communicate_with_peer(peer_id)
            return
        peer_index = self.ordered_peer_ids.index(peer_id)
        sender_index = self.sender_peer_ids.index(peer_id)
        for part_index, part in enumerate(self.parts_for_local_averaging):
            average = await self.tensor_part_reducer.accumulate_part(
                sender_index, part_index, part, weight=self.weight
            )
            self.tensor_part_container.register_processed_part(peer_index, part_index, average)

    def observations(self) -> dict[str, Observation]:
        """Of the other members, when all is merged; none without a share."""
        if not self.tensor_part_reducer.num_parts:
            return {}
        return {
            str(self.sender_peer_ids[index]): seen
            for index, seen in self.tensor_part_reducer.observations().items()
        }

    def blamed(self) -> dict[str, str]:
        """Members whose parts were malformed, which no honest program sends."""
        return {
            str(self.sender_peer_ids[index]): f"sent malformed weights: {problem}"
            for index, problem in self.tensor_part_reducer.malformed.items()
        }

    def late(self) -> frozenset[str]:
        """Members whose parts have not come to our share."""
        progress = self.tensor_part_reducer.progress
        return late_senders(
            {str(peer): num for peer, num in zip(self.sender_peer_ids, progress, strict=True)},
            own_id=str(self.peer_id),
        )


class StrangerInGroupError(MatchmakingException):
    """A leader has brought somebody who is not admitted."""


class SelectiveMatchmaking(Matchmaking):
    """Neither leads nor follows peers that are refused, nor groups with peers that are not admitted.

    Every honest leader turns those away who are not admitted. So one that does not, or is not admitted itself,
    is not followed again for a while: it costs what is left of one search.
    """

    refuses: Callable[[PeerID], bool] = staticmethod(lambda _peer_id: False)

    admits: Callable[[PeerID, bytes], bool] = staticmethod(lambda _peer_id, _gather: True)
    """Given a peer and what it wants to be gathered."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As in hivemind."""
        super().__init__(*args, **kwargs)
        self._shunned_until_s: dict[PeerID, float] = {}

    async def _request_join_group(self, leader: PeerID) -> Any:
        if self.refuses(leader) or self._shunned_until_s.get(leader, 0.0) > get_dht_time():
            return None
        try:
            return await super()._request_join_group(leader)
        except StrangerInGroupError as exc:
            logger.warning("not following …%s: %s", str(leader)[-6:], exc)
            self._shun(leader)
        except (
            OSError,
            RuntimeError,
        ) as exc:  # of a stream that is closed; hivemind ends the search
            logger.info("…%s closed the stream: %r", str(leader)[-6:], exc)
        return None

    def _shun(self, leader: PeerID) -> None:
        now_s = get_dht_time()
        kept = {peer: until_s for peer, until_s in self._shunned_until_s.items() if until_s > now_s}
        if len(kept) >= MAX_REMEMBERED_PEERS:  # new ids are free: the oldest goes
            del kept[min(kept, key=kept.__getitem__)]
        self._shunned_until_s = {**kept, leader: now_s + STRANGER_PENALTY_S}

    def _check_reasons_to_reject(self, request: Any, context: Any) -> Any:
        if self.refuses(context.remote_id) or not self.admits(context.remote_id, request.gather):
            return averaging_pb2.MessageFromLeader(code=averaging_pb2.PROTOCOL_VIOLATION)
        return super()._check_reasons_to_reject(request, context)

    async def follower_assemble_group(self, leader: PeerID, msg: Any) -> Any:
        """As in hivemind, unless somebody is in the group who must not."""
        for member, gather in zip(
            msg.ordered_peer_ids, msg.gathered, strict=False
        ):  # checked there
            if not self.admits(PeerID(member), gather):
                raise StrangerInGroupError(
                    f"…{str(PeerID(member))[-6:]} has no membership of this closed run"
                )
        return await super().follower_assemble_group(leader, msg)
