"""Can others dial us? A peer asks another to dial it back, and the answers in plain words.

The helper dials nothing but the IP address from which the asker itself is connected, and looks there
for the asker's authenticated peer id. So nobody can have it dial a third party or scan a network.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bt_p2p.errors import ConfigError, RecordRejectedError, WireFormatError
from bt_p2p.protocol.address import PeerAddress, parse_peer_address
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.limits import MAX_DIAL_BACK_ADDRESSES
from bt_p2p.swarm.reach import problem_at

MAX_TEXT_CHARS = 200
"""Of a stranger's words, on a line of ours."""

Verdict = Literal["yes", "elsewhere", "no", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialled:
    """What the helper found at one address."""

    address: str
    """Without the peer id."""
    problem: str
    """Empty if the asker answered there."""
    is_announced: bool = True
    """Whether the asker named it; else it is where the helper sees the asker."""
    is_tried: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class DialBack:
    """One helper's answer."""

    helper: str
    seen_at: str
    """The asker's IP address as the helper sees it."""
    dialled: tuple[Dialled, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reachability:
    """What the answers of some helpers say together."""

    verdict: Verdict
    """yes; elsewhere: only at an address that is not announced; no; unknown: nobody could tell."""
    works: tuple[str, ...] = ()
    """Addresses at which somebody has reached us."""
    reasons: tuple[str, ...] = ()
    """Of each address that failed, as "address: reason"."""
    seen_at: str = ""
    num_helpers: int = 0


async def dial_asker(asker: str, seen_from: str, texts: Sequence[str]) -> DialBack:
    """Dial a peer that asks for it, at its own IP address only.

    Args:
        asker: its peer id, which libp2p has authenticated.
        seen_from: multiaddr of the connection on which it asks.
        texts: multiaddrs that it announces, without a peer id.

    Raises:
        RecordRejectedError: it asks through a relay, or for too much.
    """
    seen_at = _direct_host(seen_from)
    if not 0 < len(texts) <= MAX_DIAL_BACK_ADDRESSES:
        raise RecordRejectedError(f"name 1 to {MAX_DIAL_BACK_ADDRESSES} addresses to be dialled at")
    addresses = [_own_address(text, asker) for text in texts]
    ports = sorted({address.port for address in addresses if _is_direct(address)})
    problems = dict(
        zip(
            ports,
            await asyncio.gather(*(problem_at([seen_at], port, peer_id=asker) for port in ports)),
            strict=True,
        )
    )
    there = [address for address in addresses if _is_direct(address) and _may_be(address, seen_at)]
    elsewhere = [address for address in addresses if address not in there]
    guessed = ports if not there else []
    return DialBack(
        helper="",
        seen_at=seen_at,
        dialled=(
            *(Dialled(address=_text(each), problem=problems[each.port]) for each in there),
            *(
                Dialled(address=_text(each), problem=f"I see you at {seen_at}", is_tried=False)
                for each in elsewhere
            ),
            *(
                Dialled(address=_tcp(seen_at, port), problem=problems[port], is_announced=False)
                for port in guessed
            ),
        ),
    )


def judge(answers: Sequence[DialBack]) -> Reachability:
    """Put the answers of several helpers together: one that got through is enough."""
    tried = [each for answer in answers for each in answer.dialled if each.is_tried]
    works = [each for each in tried if not each.problem]
    reasons = dict.fromkeys(
        f"{each.address}: {each.problem} (dialled by {short_peer_id(answer.helper)})"
        for answer in answers
        for each in answer.dialled
        if each.is_tried and each.problem
    )
    verdict: Verdict = "unknown"
    if any(each.is_announced for each in works):
        verdict = "yes"
    elif works:
        verdict = "elsewhere"
    elif tried:
        verdict = "no"
    return Reachability(
        verdict=verdict,
        works=tuple(dict.fromkeys(each.address for each in works)),
        reasons=tuple(reasons),
        seen_at=answers[0].seen_at if answers else "",
        num_helpers=len(answers),
    )


def fix_of(reachability: Reachability, port: int) -> str:
    """What makes this node reachable, for its owner; empty if it is, or if nobody knows."""
    if reachability.verdict == "elsewhere":
        return f"announce where others see it: --announce {reachability.works[0]}"
    if reachability.verdict == "no":
        host = reachability.seen_at
        return (
            f"open TCP port {port or 'PORT'} in the firewall and forward it in the router, with "
            f"--port {port or 'PORT'} --announce {_tcp(host, port or 'PORT')}"
        )
    return ""


def encode_dial_back(found: DialBack) -> dict[str, Any]:
    """An answer as the fields of a frame's header."""
    return {
        "seen_at": found.seen_at,
        "dialled": [
            {
                "address": each.address,
                "problem": each.problem[:MAX_TEXT_CHARS],
                "is_announced": each.is_announced,
                "is_tried": each.is_tried,
            }
            for each in found.dialled
        ],
    }


def decode_dial_back(header: dict[str, Any], *, helper: str) -> DialBack:
    """A helper's answer.

    Raises:
        WireFormatError: it is malformed.
    """
    items = header.get("dialled")
    if not isinstance(items, list) or len(items) > 2 * MAX_DIAL_BACK_ADDRESSES:
        raise WireFormatError(f"peer {short_peer_id(helper)} does not say what it dialled")
    return DialBack(
        helper=helper,
        seen_at=shown(header.get("seen_at")),
        dialled=tuple(
            Dialled(
                address=shown(item.get("address")),
                problem=shown(item.get("problem")),
                is_announced=item.get("is_announced") is True,
                is_tried=item.get("is_tried") is True,
            )
            for item in items
            if isinstance(item, dict)
        ),
    )


def shown(text: object) -> str:
    """A stranger's text, fit for a line on a terminal."""
    plain = text if isinstance(text, str) else ""
    return "".join(char for char in plain if char.isprintable())[:MAX_TEXT_CHARS]


def _direct_host(seen_from: str) -> str:
    parts = seen_from.split("/")
    if "p2p-circuit" in parts:
        raise RecordRejectedError("you ask through a relay; I only dial who is connected directly")
    if len(parts) < 3 or parts[1] not in {"ip4", "ip6"}:
        raise RecordRejectedError("your connection shows no IP address")
    return parts[2]


def _own_address(text: str, asker: str) -> PeerAddress:
    try:
        return parse_peer_address(f"{text.rstrip('/')}/p2p/{asker}")
    except ConfigError as exc:
        raise RecordRejectedError(str(exc)) from exc


def _is_direct(address: PeerAddress) -> bool:
    return address.transport == "tcp" and not address.is_relayed


def _may_be(address: PeerAddress, host: str) -> bool:
    """Whether an address leads to an IP address. Names are not looked up for strangers: they may."""
    try:
        return ipaddress.ip_address(address.host) == ipaddress.ip_address(host)
    except ValueError:
        return True


def _text(address: PeerAddress) -> str:
    """Without the peer id."""
    return address.text.rpartition("/p2p/")[0]


def _tcp(host: str, port: int | str) -> str:
    return f"/ip{6 if ':' in host else 4}/{host}/tcp/{port}"
