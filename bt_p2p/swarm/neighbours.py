"""Who a running peer is connected to, how it comes to be so again, and what time it is for them.

hivemind enters a swarm at its start only: after an outage nobody dials.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Sequence

from hivemind import DHT
from hivemind.dht.node import DHTNode
from hivemind.p2p import PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError
from hivemind.proto import dht_pb2
from hivemind.utils import get_dht_time
from hivemind.utils.multiaddr import Multiaddr

from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.limits import DHT_TIMEOUT_S, DIAL_TIMEOUT_S
from bt_p2p.swarm.bridge import call_in_dht
from bt_p2p.swarm.process import SwarmPeer
from bt_p2p.swarm.reach import probe

_MAX_CLOCKS = 16
_MAX_ROUND_TRIP_S = 1.0
"""A slower answer says too little of the other's clock."""
_DAEMON_ERRORS = (OSError, asyncio.IncompleteReadError, P2PDaemonError)


def neighbours(peer: SwarmPeer) -> set[str]:
    """Ids of the peers that this one is connected to right now.

    Raises:
        SwarmError: the DHT process does not answer.
    """
    return set(
        call_in_dht(
            peer.dht, _in_dht_neighbours, timeout_s=DHT_TIMEOUT_S, what="counting neighbours"
        )
    )


def meet(peer: SwarmPeer, addresses: Sequence[PeerAddress]) -> set[str]:
    """Dial peers, and enter the DHT through those that answer; takes up to three dials.

    A dial of our own comes first: after each of its own in vain the daemon refuses to try that peer
    again, for minutes in the end.

    Returns:
        The ids of those that answer.

    Raises:
        SwarmError: the DHT process does not answer.
    """
    alive = [found.address for found in probe(addresses) if not found.problem]
    if not alive:
        return set()
    by_peer: dict[str, list[str]] = {}
    for address in alive:
        without_id = address.text.removesuffix(f"/p2p/{address.peer_id}")
        by_peer.setdefault(address.peer_id, []).append(without_id)
    return set(
        call_in_dht(
            peer.dht,
            functools.partial(_in_dht_meet, addresses=by_peer),
            timeout_s=3 * DIAL_TIMEOUT_S,
            what="dialling peers",
        )
    )


def clock_leads_s(peer: SwarmPeer) -> list[float]:
    """By how many seconds the clocks of some neighbours are ahead of ours, one number for each.

    Raises:
        SwarmError: the DHT process does not answer.
    """
    return call_in_dht(
        peer.dht, _in_dht_clock_leads, timeout_s=DHT_TIMEOUT_S, what="comparing clocks"
    )


async def _in_dht_neighbours(_dht: DHT, node: DHTNode) -> list[str]:
    return [info.peer_id.to_base58() for info in await node.p2p.list_peers()]


async def _in_dht_meet(_dht: DHT, node: DHTNode, addresses: dict[str, list[str]]) -> list[str]:
    met = await asyncio.gather(*(_meet(node, *item) for item in addresses.items()))
    found = [peer_id for peer_id in met if peer_id]
    if found:  # those near us in the DHT learn of us, and hand over what we should store
        await asyncio.wait(
            [asyncio.create_task(node.find_nearest_nodes([node.node_id]))], timeout=DIAL_TIMEOUT_S
        )
    return found


async def _meet(node: DHTNode, peer_id: str, addresses: list[str]) -> str:
    peer = PeerID.from_base58(peer_id)
    try:
        await asyncio.wait_for(
            node.p2p._client.connect(peer, [Multiaddr(text) for text in addresses]), DIAL_TIMEOUT_S
        )
    except (TimeoutError, *_DAEMON_ERRORS):
        return ""
    answer = await node.protocol.call_ping(peer)
    return peer_id if answer is not None else ""


async def _in_dht_clock_leads(_dht: DHT, node: DHTNode) -> list[float]:
    infos = await node.p2p.list_peers()
    leads = await asyncio.gather(*(_clock_lead(node, info.peer_id) for info in infos[:_MAX_CLOCKS]))
    return [lead for lead in leads if lead is not None]


async def _clock_lead(node: DHTNode, peer: PeerID) -> float | None:
    """None if it takes no part in the DHT, or answers too slowly."""
    stub = node.protocol.get_stub(peer)
    started_s, asked_at_s = time.monotonic(), get_dht_time()
    try:
        answer = await stub.rpc_ping(dht_pb2.PingRequest(), timeout=_MAX_ROUND_TRIP_S)
    except Exception:  # noqa: BLE001 - hivemind passes on whatever the peer's handler raised
        return None
    round_trip_s = time.monotonic() - started_s
    if not answer.dht_time or round_trip_s > _MAX_ROUND_TRIP_S:
        return None
    return float(answer.dht_time - asked_at_s - round_trip_s / 2)
