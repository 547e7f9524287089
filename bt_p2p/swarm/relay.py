"""Being found behind a relay: places reserved at peers that can be dialled, and kept.

libp2p's daemon lends itself as a relay ("circuit relay v2"), but its own search for one is slow and
does not tell what it found. A reservation is one small message, so we make our own: at once, at
relays we chose, and known to hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from bt_p2p.errors import PeerError, PeerRefusedError, PeerTimeoutError, PeerUnreachableError
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.limits import DIAL_TIMEOUT_S
from bt_p2p.swarm.relay_messages import RESERVE, STATUS_OK, STATUS_WORDS, status_of

logger = logging.getLogger(__name__)

RENEW_S = 20.0
"""A relay that was lost, or came back, is noticed within this time."""
_HOP = "/libp2p/circuit/relay/0.2.0/hop"
_MAX_MESSAGE_SIZE_BYTES = 4096


class RelayPlaces:
    """Reserved places at some relays, renewed while the loop runs.

    Attributes:
        held: ids of the relays at which we have a place now.
        problems: for each other relay, why not.
    """

    def __init__(self, p2p: P2P, relay_ids: Sequence[str]) -> None:
        """Name the relays; call `reserve_all` or `start` on the loop that owns `p2p`."""
        self.held: tuple[str, ...] = ()
        self.problems: dict[str, str] = {}
        self._p2p = p2p
        self._relay_ids = tuple(dict.fromkeys(relay_ids))
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reserve now, and keep the places from then on."""
        await self.reserve_all()
        self._task = asyncio.create_task(self._keep())

    async def reserve_all(self) -> None:
        """Ask all relays at once."""
        problems = dict(
            zip(
                self._relay_ids, await asyncio.gather(*map(self._ask, self._relay_ids)), strict=True
            )
        )
        held = tuple(relay_id for relay_id, problem in problems.items() if not problem)
        if held != self.held:
            names = ", ".join(map(short_peer_id, held)) or "none"
            logger.info("relays that hold a place for us: %s", names)
        self.held = held
        self.problems = {relay_id: problem for relay_id, problem in problems.items() if problem}

    async def _ask(self, relay_id: str) -> str:
        try:
            await reserve(self._p2p, relay_id)
        except PeerError as exc:
            return str(exc)
        return ""

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            await self.reserve_all()


async def reserve(p2p: P2P, relay_id: str) -> None:
    """Get, or renew, a place at one relay; it lasts as long as the connection to it, or an hour.

    Raises:
        PeerRefusedError: it is no relay, or has no place for us.
        PeerTimeoutError: no answer.
        PeerUnreachableError: it cannot be dialled.
    """
    name = f"peer {short_peer_id(relay_id)}"
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            _, reader, writer = await p2p.call_binary_stream_handler(
                PeerID.from_base58(relay_id), _HOP
            )
            with contextlib.closing(writer):
                writer.write(RESERVE)
                await writer.drain()
                message = await _read_message(reader)
    except TimeoutError as exc:
        raise PeerTimeoutError(
            f"{name} did not reserve a place within {DIAL_TIMEOUT_S:g} s", peer_id=relay_id
        ) from exc
    except P2PDaemonError as exc:
        if "not supported" in str(exc):
            raise PeerRefusedError(f"{name} is no relay", peer_id=relay_id) from exc
        raise PeerUnreachableError(f"{name} cannot be reached", peer_id=relay_id) from exc
    except (OSError, asyncio.IncompleteReadError) as exc:
        raise PeerUnreachableError(f"{name} broke the connection", peer_id=relay_id) from exc
    status = status_of(message)
    if status != STATUS_OK:
        words = STATUS_WORDS.get(status, f"status {status}")
        raise PeerRefusedError(f"{name} is no relay for us: {words}", peer_id=relay_id)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    size, shift = 0, 0
    while True:
        (byte,) = await reader.readexactly(1)
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 14:
            raise OSError("a relay's message is over the cap")
    if size > _MAX_MESSAGE_SIZE_BYTES:
        raise OSError("a relay's message is over the cap")
    return await reader.readexactly(size)
