"""Whether the parts of a node still answer.

Each is asked: a process that is alive may be deaf, and the peer-to-peer daemon can be gone without
hivemind taking any notice.
"""

from __future__ import annotations

import asyncio
import functools

from hivemind import DHT
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from bt_p2p.errors import SwarmError
from bt_p2p.swarm.averager import HivemindAverager
from bt_p2p.swarm.bridge import call_in_dht
from bt_p2p.swarm.process import SwarmPeer


def peer_problem(peer: SwarmPeer, *, timeout_s: float) -> str:
    """What is wrong with the DHT process, the daemon or our connection to it; empty if nothing.

    Takes at most twice `timeout_s`.
    """
    if not peer.dht.is_alive():
        return "the DHT process of this node has ended"
    try:
        problem = call_in_dht(
            peer.dht,
            functools.partial(_in_dht_daemon_problem, timeout_s=timeout_s / 2),
            timeout_s=timeout_s,
            what="asking the DHT process",
        )
    except SwarmError as exc:
        return str(exc)
    if problem:
        return problem
    try:
        return peer.loop.run(_daemon_problem(peer.p2p, timeout_s / 2), timeout_s=timeout_s)
    except TimeoutError:
        return f"the RPC loop does not answer within {timeout_s:g} s"


def averager_problem(averager: HivemindAverager, *, timeout_s: float) -> str:
    """What is wrong with the averaging process; empty if nothing."""
    try:
        averager.ask(timeout_s=timeout_s)
    except SwarmError as exc:
        return str(exc)
    return ""


async def _in_dht_daemon_problem(_dht: DHT, node: DHTNode, timeout_s: float) -> str:
    return await _daemon_problem(node.p2p, timeout_s)


async def _daemon_problem(p2p: P2P, timeout_s: float) -> str:
    """Ask the daemon who it is, and look at the connection over which it hands requests to us."""
    control = p2p._client.control
    tasks = (control._read_task, control._write_task)
    if any(task is None or task.done() for task in tasks):
        return "the connection to the peer-to-peer daemon has ended"
    try:
        await asyncio.wait_for(p2p._client.identify(), timeout_s)
    except TimeoutError:
        return f"the peer-to-peer daemon does not answer within {timeout_s:g} s"
    except (OSError, asyncio.IncompleteReadError, P2PDaemonError) as exc:
        return f"the peer-to-peer daemon has ended ({type(exc).__name__})"
    return ""
