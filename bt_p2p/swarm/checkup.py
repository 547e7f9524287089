"""What a peer does for another that examines itself: dials it back, and times the link.

One request and one answer on a stream of its own protocol, so that peers of any age can be asked: an
older one does not know the protocol, and says so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from bt_p2p.clock import Clock
from bt_p2p.errors import (
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnreachableError,
    ProtocolError,
    RecordRejectedError,
    WireFormatError,
)
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.limits import (
    DIAL_TIMEOUT_S,
    MAX_CHECKUPS,
    MAX_DIAL_BACK_ADDRESSES,
    MAX_ECHO_SIZE_BYTES,
    PROTOCOL_VERSION,
)
from bt_p2p.swarm.allowance import Allowance
from bt_p2p.swarm.dial_back import (
    MAX_TEXT_CHARS,
    DialBack,
    decode_dial_back,
    dial_asker,
    encode_dial_back,
    shown,
)
from bt_p2p.swarm.link import Echo
from bt_p2p.swarm.streams import Frame, read_frame, write_frame

logger = logging.getLogger(__name__)

PROTOCOL_NAME = f"/bt-p2p/checkup/{PROTOCOL_VERSION}"
_ANSWER_TIMEOUT_S = 2 * DIAL_TIMEOUT_S
"""The helper dials before it answers."""


class CheckupServer:
    """Helps strangers to examine themselves; see `dial_back` for what it does not do."""

    def __init__(self, p2p: P2P) -> None:
        """Wrap; nobody is helped before `start`."""
        self._p2p = p2p
        self._allowance = Allowance()
        self._num_running = 0

    async def start(self) -> None:
        """Begin to answer; call on the loop that owns the p2p connection."""
        await self._p2p.add_binary_stream_handler(PROTOCOL_NAME, self._serve)

    async def _serve(
        self, info: StreamInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._num_running += 1
        try:
            request = await read_frame(
                reader, timeout_s=DIAL_TIMEOUT_S, max_body_size_bytes=MAX_ECHO_SIZE_BYTES
            )
            answer = await self._answer(request, str(info.peer_id), str(info.addr))
            await write_frame(writer, answer, timeout_s=DIAL_TIMEOUT_S)
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await reader.read(1)  # the daemon may drop the end of what was written
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ProtocolError) as exc:
            logger.debug("checkup of %s ended: %r", short_peer_id(str(info.peer_id)), exc)
        finally:
            self._num_running -= 1
            writer.close()

    async def _answer(self, request: Frame, asker: str, seen_from: str) -> Frame:
        try:
            host = "/".join(seen_from.split("/")[:3])
            if self._num_running > MAX_CHECKUPS:
                raise RecordRejectedError("busy: too many checkups at once; ask another peer")
            if not self._allowance.take(host, now_s=time.monotonic()):
                raise RecordRejectedError("you ask too often; wait a minute, or ask another peer")
            match request.header.get("op"):
                case "echo":
                    return Frame(header={"ok": True}, body=request.body)
                case "dial_back":
                    found = await dial_asker(asker, seen_from, _texts(request.header))
                    return Frame(header={"ok": True, **encode_dial_back(found)})
                case other:
                    raise WireFormatError(f"operation {other!r:.40} is not known")
        except ProtocolError as exc:
            return Frame(header={"ok": False, "error": str(exc)[:MAX_TEXT_CHARS]})


async def ask_to_dial_back(p2p: P2P, peer_id: str, addresses: Sequence[str]) -> DialBack:
    """Have another peer dial us.

    Args:
        p2p: the connection to the daemon, on its loop.
        peer_id: the helper.
        addresses: multiaddrs that we announce, without our peer id; the first few are used.

    Raises:
        PeerError: it does not answer, refuses, or is too old to know the question.
        ProtocolError: its answer is malformed.
    """
    header = {"op": "dial_back", "addresses": list(addresses[:MAX_DIAL_BACK_ADDRESSES])}
    frame = await _ask(p2p, peer_id, Frame(header=header))
    return decode_dial_back(frame.header, helper=peer_id)


async def echo(p2p: P2P, peer_id: str, *, size_bytes: int, clock: Clock) -> Echo:
    """Time a transfer to a peer and back.

    Raises:
        PeerError: it does not answer, refuses, or is too old to know the question.
        ProtocolError: its answer is malformed.
    """
    request = Frame(header={"op": "echo"}, body=bytes(size_bytes))
    started_s = clock.monotonic_s()
    frame = await _ask(p2p, peer_id, request)
    round_trip_s = clock.monotonic_s() - started_s
    if frame.body != request.body:
        raise WireFormatError(f"peer {short_peer_id(peer_id)} echoes something else")
    return Echo(round_trip_s=round_trip_s, size_bytes=size_bytes)


async def _ask(p2p: P2P, peer_id: str, request: Frame) -> Frame:
    name = f"peer {short_peer_id(peer_id)}"
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            _, reader, writer = await p2p.call_binary_stream_handler(
                PeerID.from_base58(peer_id), PROTOCOL_NAME
            )
        with contextlib.closing(writer):
            await write_frame(writer, request, timeout_s=_ANSWER_TIMEOUT_S)
            answer = await read_frame(
                reader, timeout_s=_ANSWER_TIMEOUT_S, max_body_size_bytes=MAX_ECHO_SIZE_BYTES
            )
    except TimeoutError as exc:
        raise PeerTimeoutError(f"{name} did not answer in time", peer_id=peer_id) from exc
    except P2PDaemonError as exc:
        if "not supported" in str(exc):
            raise PeerRefusedError(f"{name} is too old to help", peer_id=peer_id) from exc
        raise PeerUnreachableError(f"{name} cannot be reached", peer_id=peer_id) from exc
    except (OSError, asyncio.IncompleteReadError) as exc:
        raise PeerUnreachableError(f"{name} broke the connection", peer_id=peer_id) from exc
    if answer.header.get("ok") is not True:
        reason = shown(answer.header.get("error"))
        raise PeerRefusedError(f"{name} refused: {reason}", peer_id=peer_id)
    return answer


def _texts(header: dict[str, Any]) -> list[str]:
    texts = header.get("addresses")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise WireFormatError("addresses are a list of text")
    return texts
