"""Closes holes of hivemind 1.1.12 that a stranger, or plain load, can fall into.

Each mend replaces one function of hivemind and is shown necessary by a test. Call `harden()` before
the first process is forked: children inherit the mends.
"""

from __future__ import annotations

import asyncio
import heapq
import io
import logging
import math
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_sharer
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import hivemind
import hivemind.averaging.averager as hivemind_averager
import hivemind.averaging.key_manager as key_manager
import hivemind.averaging.partition as partition
import hivemind.dht.dht as hivemind_dht
import hivemind.dht.node as dht_node
import hivemind.utils.asyncio as hivemind_asyncio
import torch
import torch.multiprocessing
from hivemind.dht.storage import DHTLocalStorage, DictionaryDHTValue
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.control import ControlClient
from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo
from hivemind.p2p.p2p_daemon_bindings.utils import (
    raise_if_failed,
    read_pbmsg_safe,
    write_pbmsg,
)
from hivemind.proto import p2pd_pb2
from hivemind.utils.serializer import MSGPackSerializer
from hivemind.utils.timed_storage import TimedStorage

from bt_p2p.clock import SystemClock
from bt_p2p.errors import BusyError
from bt_p2p.protocol.limits import MAX_FRAME_BODY_SIZE_BYTES
from bt_p2p.swarm.live_tasks import keep_tasks_alive
from bt_p2p.swarm.quotas import QuotaLimits, Quotas
from bt_p2p.swarm.temp_folder import keep_shared_memory_sockets_here
from bt_p2p.swarm.upload import pieces, upload_wait_s

logger = logging.getLogger(__name__)

HIVEMIND_VERSION = "1.1.12"
MAX_MSGPACK_NESTING = 4
"""hivemind's own messages nest extension types once."""
MAX_AVERAGING_WEIGHT = 1e9
PIPE_STALL_TIMEOUT_S = 10.0
SEARCH_PERIOD_S = 0.25
"""How often a replica looks whether others have come to average."""
HANDLER_LIMITS = QuotaLimits(
    max_streams=256,
    max_requests=256,
    requests_per_s=200,
    bytes_per_s=8 * 1024**2,
    burst_s=10,
)
"""For calls of hivemind's own handlers, in each of its processes. A call brings up to 4 MiB."""
OWN_PROTOCOLS = "/bt-p2p/"
"""Handlers of ours count for themselves, and tell a peer why it is refused."""
MAX_STORED_SIZE_BYTES = 128 * 1024**2
"""Records of others that a DHT process keeps, values alone."""
MAX_STORED_SUBKEYS = 1024
"""Under one key: with records of 3 KiB the answer to who reads it stays below hivemind's 4 MiB."""
COUNT_PERIOD_S = 2.0
"""Stored records are counted anew this often; what was added meanwhile is added up."""

_nesting = threading.local()
_state = {"is_done": False}


def harden() -> None:
    """Apply all mends once; later calls do nothing."""
    if _state["is_done"]:
        return
    if hivemind.__version__ != HIVEMIND_VERSION:
        logger.warning(
            "hivemind %s is not the tested %s; its faults may differ",
            hivemind.__version__,
            HIVEMIND_VERSION,
        )
    # hivemind's averager can only be forked; macOS and Python 3.14 start processes otherwise
    multiprocessing.set_start_method("fork", force=True)
    _share_memory_by_descriptor()
    _limit_msgpack_nesting()
    _survive_undecodable_values()
    _retry_nonblocking_pipes()
    _survive_senders_that_end()
    _cap_stream_messages()
    _pace_stream_messages()
    _close_failed_dials()
    _check_averaging_inputs()
    _check_averaging_results()
    _pause_between_searches()
    _keep_tasks()
    _share_handlers()
    _keep_one_heap_entry()
    _cap_stored_records()
    _state["is_done"] = True


def _share_memory_by_descriptor() -> None:
    """Without it a process is aborted when it lets go of shared memory whose file is gone already.

    torch counts who uses a file, forked copies are not in that count, and the helper that removes
    files of dead processes is one more process for each node. Descriptors need neither.
    """
    if sys.platform == "linux":
        torch.multiprocessing.set_sharing_strategy("file_descriptor")  # type: ignore[no-untyped-call]
        keep_shared_memory_sockets_here()  # before the first fork: children share the folder


def _limit_msgpack_nesting() -> None:
    """Without it about 200 nested extension types crash the DHT process of any peer."""
    original = MSGPackSerializer._decode_ext_types.__func__

    def decode(cls: type, code: int, data: bytes) -> Any:
        depth = getattr(_nesting, "depth", 0)
        if depth >= MAX_MSGPACK_NESTING:
            raise ValueError(f"msgpack extension types nested over {MAX_MSGPACK_NESTING} deep")
        _nesting.depth = depth + 1
        try:
            return original(cls, code, data)
        finally:
            _nesting.depth = depth

    MSGPackSerializer._decode_ext_types = classmethod(decode)


def _survive_undecodable_values() -> None:
    """Without it one undecodable subkey makes every read of its key wait for ever."""
    original = dht_node._SearchState.finish_search

    def finish_search(self: Any) -> None:
        try:
            original(self)
        except Exception as exc:  # noqa: BLE001 - whatever a stranger's bytes raise
            logger.debug("dropping undecodable values of a key: %s", exc)
            self.binary_value = _decodable_part(self)
            try:
                original(self)
            except Exception:  # noqa: BLE001 - nothing of it can be read
                if not self.future.done():
                    self.future.set_result(None)

    dht_node._SearchState.finish_search = finish_search


def _decodable_part(search: Any) -> Any:
    value = search.binary_value
    if isinstance(value, dht_node.DictionaryDHTValue):
        for subkey, (data, _expires_at_s) in list(value.items()):
            try:
                search.serializer.loads(data)
            except Exception:  # noqa: BLE001 - whatever a stranger's bytes raise
                del value[subkey]
    return value


def _retry_nonblocking_pipes() -> None:
    """Without it a control message above 16 KiB desyncs the pipe and the child is deaf for good.

    uvloop makes the pipe non-blocking, and `Connection` then fails between two parts of a message.
    """

    def receive(self: Any, size: int, read: Callable[[int, int], bytes] = os.read) -> io.BytesIO:
        buffer = io.BytesIO()
        remaining = size
        while remaining > 0:
            try:
                chunk = read(self._handle, remaining)
            except BlockingIOError:
                readable, _, _ = select.select([self._handle], [], [], PIPE_STALL_TIMEOUT_S)
                if not readable:
                    raise
                continue
            if not chunk:
                if remaining == size:
                    raise EOFError
                raise OSError("got end of file during message")
            buffer.write(chunk)
            remaining -= len(chunk)
        return buffer

    multiprocessing.connection.Connection._recv = receive  # type: ignore[attr-defined]


def _survive_senders_that_end() -> None:
    """Without it an averager that ends at the wrong moment takes the DHT process with it.

    A message between processes may hold descriptors, which are fetched from its sender while it is
    unpickled. hivemind's loops survive an OSError there, but not the EOFError of a sender that ends.
    """
    original = multiprocessing.resource_sharer.DupFd.detach

    def detach(self: multiprocessing.resource_sharer.DupFd) -> int:
        try:
            return original(self)
        except (EOFError, multiprocessing.AuthenticationError) as exc:
            raise ConnectionResetError("the process that sent this has ended") from exc

    multiprocessing.resource_sharer.DupFd.detach = detach  # type: ignore[method-assign]


def _cap_stream_messages() -> None:
    """Without it a stranger fills our memory by announcing a message of any size."""

    async def receive_raw_data(reader: Any) -> bytes:
        size = int.from_bytes(await reader.readexactly(P2P.HEADER_LEN), P2P.BYTEORDER)
        if size > MAX_FRAME_BODY_SIZE_BYTES:
            raise ValueError(f"stream message of {size} bytes is over the cap")
        data: bytes = await reader.readexactly(size)
        return data

    P2P.receive_raw_data = staticmethod(receive_raw_data)


def _pace_stream_messages() -> None:
    """Without it averages leave as fast as the line takes them, whatever the user allows.

    One task writes to one stream, so the pieces of two messages do not mix.
    """

    async def send_raw_data(data: bytes, writer: Any, *, chunk_size: int = 1 << 16) -> None:
        message = len(data).to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER) + data
        for piece in pieces(message):
            wait_s = upload_wait_s(len(piece))
            if wait_s:
                await asyncio.sleep(wait_s)
            for offset in range(0, len(piece), chunk_size):
                writer.write(piece[offset : offset + chunk_size])
        await writer.drain()

    P2P.send_raw_data = staticmethod(send_raw_data)


def _close_failed_dials() -> None:
    """Without it each stream that cannot be opened leaves a socket to the daemon open."""

    async def stream_open(self: Any, peer_id: Any, protocols: Sequence[str]) -> Any:
        reader, writer = await self.daemon_connector.open_connection()
        try:
            opening = p2pd_pb2.StreamOpenRequest(peer=peer_id.to_bytes(), proto=list(protocols))
            request = p2pd_pb2.Request(type=p2pd_pb2.Request.STREAM_OPEN, streamOpen=opening)
            await write_pbmsg(writer, request)
            response = p2pd_pb2.Response()
            await read_pbmsg_safe(reader, response)
            raise_if_failed(response)
        except BaseException:
            writer.close()
            raise
        return StreamInfo.from_protobuf(response.streamInfo), reader, writer

    ControlClient.stream_open = stream_open


def _check_averaging_inputs() -> None:
    """Without it one peer's NaN, shape or weight spoils everybody's average."""
    original = partition.TensorPartReducer.accumulate_part

    async def accumulate_part(
        self: Any, sender_index: int, part_index: int, part: torch.Tensor, weight: float = 1.0
    ) -> torch.Tensor:
        if not (math.isfinite(weight) and 0 < weight <= MAX_AVERAGING_WEIGHT):
            raise partition.AllreduceException(f"averaging weight {weight} is out of range")
        if part_index >= self.num_parts or part.shape != self.part_shapes[part_index]:
            raise partition.AllreduceException(f"part {part_index} has shape {tuple(part.shape)}")
        if not part.is_floating_point() or not bool(torch.isfinite(part).all()):
            raise partition.AllreduceException(f"part {part_index} is not finite")
        averaged: torch.Tensor = await original(self, sender_index, part_index, part, weight=weight)
        return averaged

    partition.TensorPartReducer.accumulate_part = accumulate_part


def _check_averaging_results() -> None:
    """Without it a reducer can hand back anything as the average of its share."""
    original = partition.TensorPartContainer.register_processed_part

    def register(self: Any, peer_index: int, part_index: int, part: torch.Tensor) -> None:
        expected, _ = self._input_parts_by_peer[peer_index][part_index]
        if part.shape != expected.shape or not bool(torch.isfinite(part).all()):
            raise partition.AllreduceException(f"averaged part {part_index} is malformed")
        original(self, peer_index, part_index, part)

    partition.TensorPartContainer.register_processed_part = register


def _keep_tasks() -> None:
    """Without it a call to a child process is lost now and then, and its caller waits in vain."""
    original = hivemind_asyncio.switch_to_uvloop

    def switch_to_uvloop() -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = original()
        keep_tasks_alive(loop)
        return loop

    for module in (hivemind_dht, hivemind_averager):
        module.switch_to_uvloop = switch_to_uvloop


def _pause_between_searches() -> None:
    """Without it the first replica to look for a group asks the DHT for others without a pause.

    For as long as nobody else has come, that keeps a core of its own busy, and those of the peers
    that store the answer.
    """
    original = key_manager.GroupKeyManager.get_averagers

    async def get_averagers(self: Any, group_key: str, only_active: bool) -> Any:
        earliest_s = getattr(self, "searched_at_s", -math.inf) + SEARCH_PERIOD_S
        await asyncio.sleep(max(0.0, earliest_s - time.monotonic()))
        try:
            return await original(self, group_key, only_active=only_active)
        finally:
            self.searched_at_s = time.monotonic()

    key_manager.GroupKeyManager.get_averagers = get_averagers


def _share_handlers() -> None:
    """Without it one peer keeps a process as busy as it likes, with any number of calls at once.

    A call that its caller cancels is never forgotten without it, either.
    """
    handle = ControlClient._handle_persistent_request
    listen = ControlClient.stream_handler

    async def handle_request(self: Any, call_id: Any, request: Any) -> None:
        quotas, peer_id = _quotas_of(self), PeerID(request.peer).to_base58()
        try:
            with quotas.request(peer_id), quotas.memory(peer_id) as memory:
                memory.take(len(request.data))
                await handle(self, call_id, request)
        except BusyError as exc:
            refusal = p2pd_pb2.CallUnaryResponse(error=str(exc).encode())
            await self._pending_messages.put(
                p2pd_pb2.PersistentConnectionRequest(callId=call_id.bytes, unaryResponse=refusal)
            )
        finally:
            self._handler_tasks.pop(call_id, None)

    async def stream_handler(
        self: Any, proto: str, handler_cb: Callable[..., Any], balanced: bool = False
    ) -> Any:
        async def handle_stream(info: Any, reader: Any, writer: Any) -> None:
            try:
                with _quotas_of(self).stream(info.peer_id.to_base58()):
                    await handler_cb(info, reader, writer)
            except BusyError as exc:
                logger.debug("a stream of …%s is refused: %s", str(info.peer_id)[-6:], exc)
                writer.close()

        is_own = proto.startswith(OWN_PROTOCOLS)
        await listen(self, proto, handler_cb if is_own else handle_stream, balanced)

    ControlClient._handle_persistent_request = handle_request
    ControlClient.stream_handler = stream_handler


def _quotas_of(client: Any) -> Quotas:
    """Those of one connection to a daemon; a process has one."""
    if not hasattr(client, "quotas"):
        client.quotas = Quotas(HANDLER_LIMITS, SystemClock())
    found: Quotas = client.quotas
    return found


def _keep_one_heap_entry() -> None:
    """Without it each store of a key that is there already, refused or not, takes memory until it expires."""
    original = TimedStorage.store

    def store(self: Any, key: Any, value: Any, expiration_time: float) -> bool:
        known = self.data.get(key)
        if known is not None and not known.expiration_time < expiration_time:
            return False
        is_stored: bool = original(self, key, value, expiration_time)
        if len(self.expiration_heap) > 2 * len(self.data) + 64:
            self.expiration_heap = list(self.key_to_heap.values())
            heapq.heapify(self.expiration_heap)
        return is_stored

    TimedStorage.store = store


def _cap_stored_records() -> None:
    """Without it strangers fill our memory with small, short-lived records of no run.

    Who is there already can go on renewing its records when there is no room for new ones.
    """
    store, store_subkey = DHTLocalStorage.store, DHTLocalStorage.store_subkey

    def has_room(storage: Any, size_bytes: int) -> bool:
        now_s = time.monotonic()
        if now_s - getattr(storage, "counted_at_s", -math.inf) >= COUNT_PERIOD_S:
            storage.counted_at_s, storage.stored_bytes = now_s, _stored_size_bytes(storage)
        if storage.stored_bytes + size_bytes > MAX_STORED_SIZE_BYTES:
            return False
        storage.stored_bytes += size_bytes
        return True

    def store_capped(
        self: Any, key: Any, value: Any, expiration_time: float, subkey: Any = None
    ) -> bool:
        if subkey is None and key not in self and not has_room(self, len(value)):
            return False
        return bool(store(self, key, value, expiration_time, subkey))

    def store_subkey_capped(
        self: Any, key: Any, subkey: Any, value: bytes, expiration_time: float
    ) -> bool:
        known = self.get(key)
        others = known.value if known and isinstance(known.value, DictionaryDHTValue) else ()
        if subkey not in others and (
            len(others) >= MAX_STORED_SUBKEYS or not has_room(self, len(value))
        ):
            return False
        return bool(store_subkey(self, key, subkey, value, expiration_time))

    DHTLocalStorage.store, DHTLocalStorage.store_subkey = store_capped, store_subkey_capped


def _stored_size_bytes(storage: Any) -> int:
    """Bytes of all values, those in dictionaries too."""
    return sum(
        sum(len(inner.value) for _, inner in item.value.items())
        if isinstance(item.value, DictionaryDHTValue)
        else len(item.value)
        for _, item in storage.items()
    )
