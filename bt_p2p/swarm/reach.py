"""Which initial peers answer, and in plain words why the others do not."""

from __future__ import annotations

import concurrent.futures
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.limits import DIAL_TIMEOUT_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """What a dial to one address found."""

    address: PeerAddress
    problem: str
    """Empty when it can be dialled, or cannot be told (udp)."""


def probe(addresses: Sequence[PeerAddress]) -> list[Reach]:
    """Dial all addresses at once; takes at most `DIAL_TIMEOUT_S` plus name resolution."""
    if not addresses:
        return []
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(16, len(addresses))) as pool:
        problems = list(pool.map(_problem_of, addresses))
    return [
        Reach(address=address, problem=problem)
        for address, problem in zip(addresses, problems, strict=True)
    ]


def _problem_of(address: PeerAddress) -> str:
    if address.transport != "tcp":
        return ""
    try:
        with socket.create_connection((address.host, address.port), timeout=DIAL_TIMEOUT_S):
            return ""
    except TimeoutError:
        return f"timed out after {DIAL_TIMEOUT_S:g} s (host down, or a firewall drops it)"
    except ConnectionRefusedError:
        return "refused (the host is up, but nothing listens on this port)"
    except socket.gaierror:
        return "no such host"
    except OSError as exc:
        return (exc.strerror or str(exc)).lower()
