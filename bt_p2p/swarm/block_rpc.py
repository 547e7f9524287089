"""The block RPC ports over libp2p streams; frames in `streams`, several requests in one in `bundles`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from bt_p2p.chain.block_rpc import (
    BlockService,
    ForwardReply,
    ForwardRequest,
    HandedOn,
    Readiness,
)
from bt_p2p.chain.forwarding import Forwarder
from bt_p2p.chain.weights_offer import ChunkRequest, WeightsOffer
from bt_p2p.clock import SystemClock
from bt_p2p.errors import (
    BtError,
    BusyError,
    CacheLostError,
    PeerBusyError,
    PeerLostCacheError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnreachableError,
    WireFormatError,
)
from bt_p2p.protocol.limits import (
    DIAL_TIMEOUT_S,
    IDLE_STREAM_S,
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
from bt_p2p.swarm.bundles import BUNDLE, MAX_SMALL_BODY_SIZE_BYTES, Outbox, bundle, unbundle
from bt_p2p.swarm.quotas import QuotaLimits, Quotas
from bt_p2p.swarm.streams import Frame, read_frame, write_frame
from bt_p2p.swarm.upload import refuse_if_used_up
from bt_p2p.swarm.weights_rpc import (
    ask_chunk,
    ask_offers,
    decode_chunk,
    decode_offers,
    encode_offers,
    offer_and_index,
)

logger = logging.getLogger(__name__)

PROTOCOL_NAME = f"/bt-p2p/block/{PROTOCOL_VERSION}"
_MAX_ERROR_CHARS = 300
_CACHE_LOST = "cache_lost"
_BUSY = "busy"
_REFUSALS = {_CACHE_LOST: PeerLostCacheError, _BUSY: PeerBusyError}
"""What a client makes of the kind of a refusal."""
_MAX_SMALL_TOKENS = 16
"""A request for more travels alone: its answer is large."""
_MAX_IDLE_STREAMS = 16
"""Kept to one peer."""
_MAX_CLOSING_STREAMS = 64
"""Refused streams that wait for their client to read why; others are closed without a word."""
_READ_AWAY_BYTES = 1 << 16

T = TypeVar("T")


class HivemindBlockServer:
    """Answers strangers from a `BlockService`; within their quotas.

    Attributes:
        quotas: what each peer has of this server now.
        bytes_sent: bodies of all answers so far.
        idle_stream_s: how long a stream may wait for its next request.
    """

    def __init__(self, p2p: P2P, service: BlockService, limits: QuotaLimits | None = None) -> None:
        """Wrap; nothing is served before `start`."""
        self.idle_stream_s = IDLE_STREAM_S
        self._p2p = p2p
        self._service = service
        self._forwarder = Forwarder(service, HivemindBlockClient(p2p), p2p.peer_id.to_base58())
        self._num_closing = 0
        self.quotas = Quotas(limits or QuotaLimits(), SystemClock())
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
        """One request after another, until the client closes the stream or leaves it idle."""
        asker = str(info.peer_id)
        try:
            with self.quotas.stream(asker):
                await self._answer_all(asker, reader, writer)
        except WireFormatError as exc:  # what follows on this stream could not be told apart
            self.quotas.blame(asker)
            await self._refuse_and_close(reader, writer, _refusal(str(exc)))
        except BusyError as exc:
            await self._refuse_and_close(reader, writer, _refusal(str(exc), kind=_BUSY))
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as exc:
            logger.debug("stream of …%s ended: %r", asker[-6:], exc)
        finally:
            writer.close()

    async def _answer_all(
        self, asker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        timeout_s = READ_TIMEOUT_S
        while True:
            with self.quotas.memory(asker) as memory:
                request = await read_frame(reader, timeout_s=timeout_s, take=memory.take)
                await self._answer(request, asker, reader, writer)
            del request  # an idle stream keeps nothing
            timeout_s = self.idle_stream_s

    async def _answer(
        self,
        request: Frame,
        asker: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        reply = await _unless_gone(self._reply(request, asker), reader)
        await write_frame(writer, reply, timeout_s=READ_TIMEOUT_S)
        self.bytes_sent += len(reply.body)

    async def _reply(self, request: Frame, asker: str) -> Frame:
        """The answer to a request, or to all of a bundle; a refusal is an answer, too."""
        if request.header.get("op") != BUNDLE:
            return await self._reply_to_one(request, asker)
        parts = unbundle(request)
        return bundle(await asyncio.gather(*(self._reply_to_one(each, asker) for each in parts)))

    async def _reply_to_one(self, request: Frame, asker: str) -> Frame:
        try:
            with self.quotas.request(asker):
                return await self._answer_one(request, asker)
        except CacheLostError as exc:
            return _refusal(str(exc), kind=_CACHE_LOST)
        except BusyError as exc:
            return _refusal(str(exc), kind=_BUSY)
        except BtError as exc:
            return _refusal(str(exc))
        except (ValueError, RuntimeError, IndexError, TypeError) as exc:
            logger.warning("a request could not be answered: %r", exc)
            return _refusal("the holder could not compute this request")

    async def _answer_one(self, request: Frame, asker: str) -> Frame:
        refuse_if_used_up()
        match request.header.get("op"):
            case "forward":
                asked = self._read(decode_request, request, asker)
                reply = await self._forwarder.forward(asked, asker=asker)
                return encode_reply(reply, asked.precision)
            case "ready":
                run_id, block = self._read(_run_and_block, request, asker)
                return encode_readiness(self._service.readiness(run_id, block))
            case "hand_on":
                self._forwarder.receive(self._read(decode_handed_on, request, asker))
                return Frame(header={"ok": True})
            case "weights_offers":
                run_id, block = self._read(_run_and_block, request, asker)
                return encode_offers(await self._service.weights_offers(run_id, block, asker=asker))
            case "weights_chunk":
                run_id, block = self._read(_run_and_block, request, asker)
                offer_id, index = self._read(offer_and_index, request, asker)
                chunk = self._service.weights_chunk(run_id, block, offer_id, index, asker=asker)
                return Frame(header={"ok": True}, body=await chunk)
            case _:
                return self._read(_unknown, request, asker)

    def _read(self, decode: Callable[[Frame], T], request: Frame, asker: str) -> T:
        """Decode; who sent what cannot be read is to blame, unlike who asks for what cannot be done."""
        try:
            return decode(request)
        except WireFormatError:
            self.quotas.blame(asker)
            raise

    async def _refuse_and_close(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refusal: Frame
    ) -> None:
        """The daemon may drop the end of what was written if we close first; so we wait, for a few."""
        if self._num_closing >= _MAX_CLOSING_STREAMS:
            return
        self._num_closing += 1
        try:
            with contextlib.suppress(TimeoutError, OSError):
                await write_frame(writer, refusal, timeout_s=DIAL_TIMEOUT_S)
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    while await reader.read(_READ_AWAY_BYTES):
                        pass  # what a client still sends before it looks at the answer
        finally:
            self._num_closing -= 1


@dataclass(kw_only=True, slots=True, eq=False)
class _Stream:
    """An open stream to a peer."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_whole: bool = False
    """Whether the last answer was read to its end, so that another request may follow."""
    idle_since_s: float = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether neither side has closed it, as far as we know."""
        return not self.reader.at_eof() and not self.writer.is_closing()


class HivemindBlockClient:
    """Asks other peers; see `chain.block_rpc.BlockClient`. Use on the loop that owns `p2p`.

    Streams are kept for the next request: opening one costs more than a small answer.
    """

    def __init__(self, p2p: P2P) -> None:
        """Wrap a connection to the daemon."""
        self._p2p = p2p
        self._idle: dict[str, list[_Stream]] = {}
        self._tending: asyncio.Task[None] | None = None
        self._outboxes: dict[str, Outbox] = {}

    async def forward(
        self, peer_id: str, request: ForwardRequest, *, timeout_s: float
    ) -> ForwardReply:
        """Compute one block on some sequences."""
        is_small = request.tokens_NT.numel() <= _MAX_SMALL_TOKENS
        frame = await self._ask(
            peer_id, encode_request(request), timeout_s=timeout_s, is_small=is_small
        )
        return decode_reply(frame, request)

    async def ready(self, peer_id: str, *, run_id: str, block: int, timeout_s: float) -> Readiness:
        """Ask whether a holder is there, and how busy."""
        request = Frame(header={"op": "ready", "run": run_id, "block": block})
        return decode_readiness(await self._ask(peer_id, request, timeout_s=timeout_s))

    async def hand_on(self, peer_id: str, handed: HandedOn, *, timeout_s: float) -> None:
        """Give another holder what its block needs."""
        await self._ask(peer_id, encode_handed_on(handed), timeout_s=timeout_s)

    async def weights_offers(
        self, peer_id: str, *, run_id: str, block: int, max_size_bytes: int, timeout_s: float
    ) -> tuple[WeightsOffer, ...]:
        """Which snapshots of its weights a holder can give, the newest first."""
        asked = ask_offers(run_id, block)
        frame = await self._ask(peer_id, asked, timeout_s=timeout_s, is_small=False)
        return decode_offers(frame, max_size_bytes=max_size_bytes)

    async def weights_chunk(
        self, peer_id: str, request: ChunkRequest, *, timeout_s: float
    ) -> bytes:
        """One chunk of a snapshot, which matches its hash."""
        frame = await self._ask(peer_id, ask_chunk(request), timeout_s=timeout_s, is_small=False)
        return decode_chunk(frame, request)

    async def _ask(
        self, peer_id: str, request: Frame, *, timeout_s: float, is_small: bool = True
    ) -> Frame:
        """One request, one answer; those that are small, and so are their answers, travel together."""
        if not is_small or len(request.body) > MAX_SMALL_BODY_SIZE_BYTES:
            return _accepted(peer_id, await self._ask_alone(peer_id, request, timeout_s))
        outbox = self._outboxes.get(peer_id)
        if outbox is None:
            outbox = Outbox(functools.partial(self._ask_alone, peer_id))
            self._outboxes[peer_id] = outbox
        try:
            return _accepted(peer_id, await outbox.ask(request, timeout_s=timeout_s))
        finally:
            if outbox.is_empty:
                self._outboxes.pop(peer_id, None)

    async def _ask_alone(self, peer_id: str, request: Frame, timeout_s: float) -> Frame:
        """On a stream left from before if there is one; if that is broken, again on a new one."""
        kept = self._take_idle(peer_id)
        if kept is not None:
            with contextlib.suppress(PeerUnreachableError):
                return await self._ask_on(peer_id, request, kept, timeout_s=timeout_s)
        return await self._ask_on(peer_id, request, None, timeout_s=timeout_s)

    async def _ask_on(
        self, peer_id: str, request: Frame, kept: _Stream | None, *, timeout_s: float
    ) -> Frame:
        async with self._stream(peer_id, kept, timeout_s=timeout_s) as stream:
            await write_frame(stream.writer, request, timeout_s=timeout_s)
            frame = await read_frame(stream.reader, timeout_s=timeout_s)
            stream.is_whole = True
        return frame

    def _take_idle(self, peer_id: str) -> _Stream | None:
        """A stream that is still open, as far as one can tell; the one used last."""
        streams = self._idle.get(peer_id)
        latest_s = time.monotonic() - IDLE_STREAM_S / 2
        while streams:
            stream = streams.pop()
            if stream.is_usable and stream.idle_since_s > latest_s:
                return stream
            stream.writer.close()
        return None

    def _close_idle(self, *, older_than_s: float) -> None:
        latest_s = time.monotonic() - older_than_s
        for peer_id, streams in list(self._idle.items()):
            fresh = [each for each in streams if each.is_usable and each.idle_since_s > latest_s]
            for each in streams:
                if each not in fresh:
                    each.writer.close()
            self._idle[peer_id] = fresh
            if not fresh:
                del self._idle[peer_id]

    async def _tend_idle(self) -> None:
        """Closes idle streams in time, and all of them when the loop ends."""
        try:
            while self._idle:
                await asyncio.sleep(IDLE_STREAM_S / 4)
                self._close_idle(older_than_s=IDLE_STREAM_S / 2)
        finally:
            self._close_idle(older_than_s=-1.0)

    @contextlib.asynccontextmanager
    async def _stream(
        self, peer_id: str, kept: _Stream | None = None, *, timeout_s: float
    ) -> AsyncIterator[_Stream]:
        """A stream, and what can go wrong on it as errors that name the peer.

        It is kept for later if the caller says that it is whole, and closed otherwise.
        """
        name = f"peer …{peer_id[-6:]}"
        stream = kept
        try:
            if stream is None:
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    _, reader, writer = await self._p2p.call_binary_stream_handler(
                        PeerID.from_base58(peer_id), PROTOCOL_NAME
                    )
                stream = _Stream(reader=reader, writer=writer)
            stream.is_whole = False
            yield stream
        except TimeoutError as exc:
            phase = f"answer within {timeout_s:g} s" if stream else f"dial in {DIAL_TIMEOUT_S:g} s"
            raise PeerTimeoutError(f"{name} did not {phase}", peer_id=peer_id) from exc
        except P2PDaemonError as exc:
            raise PeerUnreachableError(
                f"{name} cannot be reached: {str(exc).strip()[:_MAX_ERROR_CHARS]}", peer_id=peer_id
            ) from exc
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise PeerUnreachableError(f"{name} broke the connection", peer_id=peer_id) from exc
        finally:
            if stream is not None:
                self._keep_or_close(peer_id, stream)

    def _keep_or_close(self, peer_id: str, stream: _Stream) -> None:
        others = self._idle.setdefault(peer_id, [])
        if not stream.is_whole or len(others) >= _MAX_IDLE_STREAMS:
            stream.writer.close()
            return
        stream.idle_since_s = time.monotonic()
        others.append(stream)
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._tend_idle())


def _refusal(reason: str, *, kind: str | None = None) -> Frame:
    return Frame(header={"ok": False, "error": reason[:_MAX_ERROR_CHARS], "kind": kind})


def _accepted(peer_id: str, frame: Frame) -> Frame:
    """The frame, unless it is a refusal."""
    if frame.header.get("ok") is not True:
        reason = str(frame.header.get("error", "no reason given"))[:_MAX_ERROR_CHARS]
        error = _REFUSALS.get(str(frame.header.get("kind")), PeerRefusedError)
        raise error(f"peer …{peer_id[-6:]} refused: {reason}", peer_id=peer_id)
    return frame


async def _unless_gone(work: Coroutine[Any, Any, T], reader: asyncio.StreamReader) -> T:
    """The result of some work, which is given up when the client closes the stream.

    Raises:
        OSError: the client has gone, or sends before it has its answer.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ConnectionResetError("the client did not wait for its answer")
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _unknown(request: Frame) -> Frame:
    raise WireFormatError(f"operation {request.header.get('op')!r:.40} is not known")


def _run_and_block(request: Frame) -> tuple[str, int]:
    run_id, block = request.header.get("run"), request.header.get("block")
    if not isinstance(run_id, str) or type(block) is not int:
        raise WireFormatError("run is text and block a whole number")
    return run_id, block
