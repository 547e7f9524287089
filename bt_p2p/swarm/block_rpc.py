"""The block RPC ports over libp2p streams: one stream a request, frames in `streams`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from bt_p2p.chain.block_rpc import (
    BlockService,
    ForwardReply,
    ForwardRequest,
    HandedOn,
    Progress,
    Readiness,
    WeightsReply,
)
from bt_p2p.chain.forwarding import Forwarder
from bt_p2p.errors import (
    BtError,
    CacheLostError,
    PeerLostCacheError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnreachableError,
    WireFormatError,
)
from bt_p2p.protocol.limits import (
    DIAL_TIMEOUT_S,
    MAX_CONCURRENT_STREAMS,
    MAX_WEIGHTS_SIZE_BYTES,
    PROTOCOL_VERSION,
    READ_TIMEOUT_S,
)
from bt_p2p.swarm.block_messages import (
    decode_handed_on,
    decode_readiness,
    decode_reply,
    decode_request,
    encode_handed_on,
    encode_readiness,
    encode_reply,
    encode_request,
)
from bt_p2p.swarm.streams import Frame, read_frame, write_frame

logger = logging.getLogger(__name__)

PROTOCOL_NAME = f"/bt-p2p/block/{PROTOCOL_VERSION}"
_WEIGHTS_CHUNK_BYTES = 1 << 20
_MAX_ERROR_CHARS = 300
_CACHE_LOST = "cache_lost"


class HivemindBlockServer:
    """Answers strangers from a `BlockService`; at most `MAX_CONCURRENT_STREAMS` at once.

    Attributes:
        bytes_sent: bodies of all answers so far.
    """

    def __init__(self, p2p: P2P, service: BlockService) -> None:
        """Wrap; nothing is served before `start`."""
        self._p2p = p2p
        self._service = service
        self._forwarder = Forwarder(service, HivemindBlockClient(p2p))
        self._num_streams = 0
        self.bytes_sent = 0

    async def start(self) -> None:
        """Begin to answer; call on the loop that owns the p2p connection."""
        await self._p2p.add_binary_stream_handler(PROTOCOL_NAME, self._serve)

    async def stop(self) -> None:
        """Answer no new streams."""
        await self._p2p.remove_binary_stream_handler(PROTOCOL_NAME)

    async def _serve(
        self, info: StreamInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._num_streams += 1
        try:
            if self._num_streams > MAX_CONCURRENT_STREAMS:
                await self._refuse(writer, "busy: too many requests at once; ask another holder")
            else:
                await self._answer(str(info.peer_id), reader, writer)
            # The daemon may drop the end of what was written if we close first.
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await reader.read(1)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as exc:
            logger.debug("stream of …%s ended early: %r", str(info.peer_id)[-6:], exc)
        finally:
            self._num_streams -= 1
            writer.close()

    async def _answer(
        self, asker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            request = await read_frame(reader, timeout_s=READ_TIMEOUT_S)
            operation = request.header.get("op")
            if operation == "forward":
                reply = await self._forwarder.forward(decode_request(request), asker=asker)
                frame = encode_reply(reply)
                await write_frame(writer, frame, timeout_s=READ_TIMEOUT_S)
                self.bytes_sent += len(frame.body)
            elif operation == "ready":
                readiness = self._service.readiness(*_run_and_block(request))
                frame = encode_readiness(readiness)
                await write_frame(writer, frame, timeout_s=DIAL_TIMEOUT_S)
            elif operation == "hand_on":
                self._forwarder.receive(decode_handed_on(request))
                await write_frame(writer, Frame(header={"ok": True}), timeout_s=READ_TIMEOUT_S)
            elif operation == "weights":
                await self._send_weights(request, writer)
            else:
                raise WireFormatError(f"operation {operation!r:.40} is not known")
        except CacheLostError as exc:
            await self._refuse(writer, str(exc), kind=_CACHE_LOST)
        except BtError as exc:
            await self._refuse(writer, str(exc))
        except (ValueError, RuntimeError, IndexError, TypeError) as exc:
            logger.warning("a request could not be answered: %r", exc)
            await self._refuse(writer, "the holder could not compute this request")

    async def _send_weights(self, request: Frame, writer: asyncio.StreamWriter) -> None:
        reply = await self._service.weights(*_run_and_block(request))
        header = {
            "ok": True,
            "round": reply.round_index,
            "size_bytes": len(reply.data),
            "sha256": hashlib.sha256(reply.data).digest(),
        }
        await write_frame(writer, Frame(header=header), timeout_s=READ_TIMEOUT_S)
        for offset in range(0, len(reply.data), _WEIGHTS_CHUNK_BYTES):
            chunk = reply.data[offset : offset + _WEIGHTS_CHUNK_BYTES]
            await write_frame(writer, Frame(header={}, body=chunk), timeout_s=READ_TIMEOUT_S)
            self.bytes_sent += len(chunk)

    async def _refuse(
        self, writer: asyncio.StreamWriter, reason: str, *, kind: str | None = None
    ) -> None:
        header = {"ok": False, "error": reason[:_MAX_ERROR_CHARS], "kind": kind}
        await write_frame(writer, Frame(header=header), timeout_s=DIAL_TIMEOUT_S)


class HivemindBlockClient:
    """Asks other peers; see `chain.block_rpc.BlockClient`. Use on the loop that owns `p2p`."""

    def __init__(self, p2p: P2P) -> None:
        """Wrap a connection to the daemon."""
        self._p2p = p2p

    async def forward(
        self, peer_id: str, request: ForwardRequest, *, timeout_s: float
    ) -> ForwardReply:
        """Compute one block on some sequences."""
        async with self._stream(peer_id, timeout_s=timeout_s) as (reader, writer):
            await write_frame(writer, encode_request(request), timeout_s=timeout_s)
            frame = await self._read(peer_id, reader, timeout_s=timeout_s)
            return decode_reply(frame, request)

    async def ready(self, peer_id: str, *, run_id: str, block: int, timeout_s: float) -> Readiness:
        """Ask whether a holder is there, and how busy."""
        async with self._stream(peer_id, timeout_s=timeout_s) as (reader, writer):
            header = {"op": "ready", "run": run_id, "block": block}
            await write_frame(writer, Frame(header=header), timeout_s=timeout_s)
            return decode_readiness(await self._read(peer_id, reader, timeout_s=timeout_s))

    async def hand_on(self, peer_id: str, handed: HandedOn, *, timeout_s: float) -> None:
        """Give another holder what its block needs."""
        async with self._stream(peer_id, timeout_s=timeout_s) as (reader, writer):
            await write_frame(writer, encode_handed_on(handed), timeout_s=timeout_s)
            await self._read(peer_id, reader, timeout_s=timeout_s)

    async def fetch_weights(
        self,
        peer_id: str,
        *,
        run_id: str,
        block: int,
        max_size_bytes: int,
        timeout_s: float,
        progress: Progress | None = None,
    ) -> WeightsReply:
        """Download a replica's weights; `timeout_s` is for each chunk."""
        async with self._stream(peer_id, timeout_s=timeout_s) as (reader, writer):
            header = {"op": "weights", "run": run_id, "block": block}
            await write_frame(writer, Frame(header=header), timeout_s=timeout_s)
            head = (await self._read(peer_id, reader, timeout_s=timeout_s)).header
            size_bytes, round_index = head.get("size_bytes"), head.get("round")
            if type(size_bytes) is not int or type(round_index) is not int:
                raise WireFormatError("weights are announced without size or round")
            if not 0 < size_bytes <= min(max_size_bytes, MAX_WEIGHTS_SIZE_BYTES):
                raise WireFormatError(
                    f"weights of {size_bytes} bytes are over the {max_size_bytes} of this block"
                )
            if not 0 <= round_index < 2**40:
                raise WireFormatError(f"weights are announced for round {round_index}")
            data = bytearray()
            while len(data) < size_bytes:
                chunk = await read_frame(
                    reader, timeout_s=timeout_s, max_body_size_bytes=_WEIGHTS_CHUNK_BYTES
                )
                if not chunk.body:
                    raise WireFormatError("a chunk of the weights is empty")
                data += chunk.body
                if progress is not None:
                    progress(len(data), size_bytes)
            if hashlib.sha256(data).digest() != head.get("sha256"):
                raise WireFormatError("weights do not match the hash they were announced with")
            return WeightsReply(round_index=round_index, data=bytes(data))

    async def _read(self, peer_id: str, reader: asyncio.StreamReader, *, timeout_s: float) -> Frame:
        frame = await read_frame(reader, timeout_s=timeout_s)
        if frame.header.get("ok") is not True:
            reason = str(frame.header.get("error", "no reason given"))[:_MAX_ERROR_CHARS]
            is_lost = frame.header.get("kind") == _CACHE_LOST
            error = PeerLostCacheError if is_lost else PeerRefusedError
            raise error(f"peer …{peer_id[-6:]} refused: {reason}", peer_id=peer_id)
        return frame

    @contextlib.asynccontextmanager
    async def _stream(
        self, peer_id: str, *, timeout_s: float
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a stream, and turn what can go wrong on it into errors that name the peer."""
        name = f"peer …{peer_id[-6:]}"
        writer = None
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                _, reader, writer = await self._p2p.call_binary_stream_handler(
                    PeerID.from_base58(peer_id), PROTOCOL_NAME
                )
            yield reader, writer
        except TimeoutError as exc:
            phase = f"answer within {timeout_s:g} s" if writer else f"dial in {DIAL_TIMEOUT_S:g} s"
            raise PeerTimeoutError(f"{name} did not {phase}", peer_id=peer_id) from exc
        except P2PDaemonError as exc:
            raise PeerUnreachableError(
                f"{name} cannot be reached: {str(exc).strip()[:_MAX_ERROR_CHARS]}", peer_id=peer_id
            ) from exc
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise PeerUnreachableError(f"{name} broke the connection", peer_id=peer_id) from exc
        finally:
            if writer is not None:
                writer.close()


def _run_and_block(request: Frame) -> tuple[str, int]:
    run_id, block = request.header.get("run"), request.header.get("block")
    if not isinstance(run_id, str) or type(block) is not int:
        raise WireFormatError("run is text and block a whole number")
    return run_id, block
