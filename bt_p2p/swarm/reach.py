"""Which initial peers answer, and in plain words why the others do not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.limits import DIAL_TIMEOUT_S
from bt_p2p.swarm.peer_probe import peer_id_at

_FAMILIES = {
    "dns": socket.AF_UNSPEC,
    "dns4": socket.AF_INET,
    "dns6": socket.AF_INET6,
}
GRACE_S = 1.0
"""Once one peer answers, the others get this long: a dead address must not hold up who can join."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """What a dial to one address found."""

    address: PeerAddress
    problem: str
    """Empty when the right peer answers, or when it cannot be told (udp, dnsaddr)."""


def probe(addresses: Sequence[PeerAddress], *, is_thorough: bool = False) -> list[Reach]:
    """Dial all addresses at once, of both families; takes at most `DIAL_TIMEOUT_S`.

    Args:
        addresses: whom to dial.
        is_thorough: wait for each, even if others have answered.
    """
    if not addresses:
        return []
    return asyncio.run(_probe_all(addresses, is_thorough=is_thorough))


async def problem_of(address: PeerAddress) -> str:
    """Dial one address: empty if the right peer answers, else why not, in plain words."""
    if not _can_be_told(address):
        return ""
    try:
        hosts = await resolve(address)
    except TimeoutError:
        return f"the name was not resolved within {DIAL_TIMEOUT_S:g} s"
    except OSError:
        return "no such host"
    return await problem_at(hosts, address.port, peer_id=address.answering_peer_id)


async def problem_at(hosts: Sequence[str], port: int, *, peer_id: str) -> str:
    """Dial some IP addresses at once: empty if the right peer answers at one, else why not."""
    try:
        answering = await _first_answer(hosts, port)
    except TimeoutError:
        return f"timed out after {DIAL_TIMEOUT_S:g} s (host down, or a firewall drops it)"
    except ConnectionRefusedError:
        return "refused (the host is up, but nothing listens on this port)"
    except WireFormatError as exc:
        return f"accepts connections, but {exc}"
    except OSError as exc:
        return _words_of(exc)
    if answering in ("", peer_id):
        return ""
    return f"another peer answers there ({short_peer_id(answering)}); ask for the current address"


async def resolve(address: PeerAddress) -> list[str]:
    """The IP addresses behind an address; itself if it is none of a name.

    Raises:
        TimeoutError: no answer in time.
        OSError: the name is not known.
    """
    family = _FAMILIES.get(address.host_protocol)
    if family is None:
        return [address.host]
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def look_up() -> None:
        try:
            infos = socket.getaddrinfo(address.host, None, family, socket.SOCK_STREAM)
            result: list[str] | OSError = [str(info[4][0]) for info in infos]
        except OSError as exc:
            result = exc
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_settle, found, result)

    # not in the loop's own pool: that waits at its end for a resolver that hangs
    threading.Thread(target=look_up, name="resolver", daemon=True).start()
    async with asyncio.timeout(DIAL_TIMEOUT_S):
        return list(dict.fromkeys(await found))


async def _probe_all(addresses: Sequence[PeerAddress], *, is_thorough: bool) -> list[Reach]:
    tasks = {asyncio.create_task(problem_of(address)): address for address in addresses}
    loop = asyncio.get_running_loop()
    waiting, ends_at_s = set(tasks), math.inf
    while waiting and loop.time() < ends_at_s:
        left_s = None if math.isinf(ends_at_s) else ends_at_s - loop.time()
        done, waiting = await asyncio.wait(
            waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
        )
        answered = any(not task.result() and _can_be_told(tasks[task]) for task in done)
        if answered and not is_thorough:
            ends_at_s = min(ends_at_s, loop.time() + GRACE_S)
    for task in waiting:
        task.cancel()
    late = f"no answer within {GRACE_S:g} s, while another peer has answered"
    return [
        Reach(address=address, problem=late if task in waiting else task.result())
        for task, address in tasks.items()
    ]


def _can_be_told(address: PeerAddress) -> bool:
    return address.transport == "tcp" and address.host_protocol != "dnsaddr"


async def _first_answer(hosts: Sequence[str], port: int) -> str:
    """Who answers at one of the hosts; they are dialled at once, so that a dead family costs nothing."""
    tasks = [
        asyncio.create_task(peer_id_at(host, port, timeout_s=DIAL_TIMEOUT_S)) for host in hosts
    ]
    try:
        for task in asyncio.as_completed(tasks):
            with contextlib.suppress(OSError, WireFormatError):
                return await task
        return tasks[0].result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _settle(future: asyncio.Future[list[str]], result: list[str] | OSError) -> None:
    if future.done():
        return
    if isinstance(result, OSError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _words_of(error: OSError) -> str:
    if error.errno == errno.ENETUNREACH:
        return "this machine has no route there (no network of that kind, IPv6 perhaps)"
    return (os.strerror(error.errno) if error.errno else str(error)).lower()
