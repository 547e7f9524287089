"""Asks the peers we are connected to for help with examining ourselves."""

from __future__ import annotations

import asyncio
import random

from hivemind.p2p import P2P
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from bt_p2p.errors import PeerError, ProtocolError
from bt_p2p.protocol.address import dialable, parse_peer_address, routable_first
from bt_p2p.swarm.checkup import ask_to_dial_back
from bt_p2p.swarm.dial_back import DialBack, Reachability, judge

MAX_HELPERS = 4
"""Peers asked in one go."""


async def helpers(p2p: P2P) -> list[str]:
    """Peers that are connected directly, those of other networks first, else in random order."""
    try:
        infos = await p2p.list_peers()
    except (P2PDaemonError, OSError):
        return []
    found: dict[str, int] = {}
    for info in infos:
        peer_id = info.peer_id.to_base58()
        texts = [f"{address}/p2p/{peer_id}" for address in info.addrs]
        direct = [text for text in dialable(texts) if not parse_peer_address(text).is_relayed]
        if direct:
            address = parse_peer_address(direct[0])
            found[peer_id] = 2 if address.is_loopback else 1 if address.is_private else 0
    shuffled = random.sample(sorted(found), len(found))
    return sorted(shuffled, key=lambda peer_id: found[peer_id])


async def ask_neighbours(p2p: P2P) -> Reachability:
    """Have some neighbours dial us back; never raises, as nobody may be there to tell."""
    try:
        visible = await p2p.get_visible_maddrs(latest=True)
    except (ValueError, P2PDaemonError, OSError):  # listens nowhere, or the daemon is gone
        return judge([])
    own = [text.rpartition("/p2p/")[0] for text in routable_first(dialable(map(str, visible)))]
    chosen = (await helpers(p2p))[:MAX_HELPERS]
    answers = await asyncio.gather(
        *(ask_to_dial_back(p2p, peer_id, own) for peer_id in chosen), return_exceptions=True
    )
    good: list[DialBack] = []
    for answer in answers:
        if isinstance(answer, DialBack):
            good.append(answer)
        elif not isinstance(answer, (PeerError, ProtocolError)):
            raise answer
    return judge(good)
