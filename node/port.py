"""The port on which a node listens, the same after a rebuild."""

from __future__ import annotations

from collections.abc import Sequence

from bt_p2p.errors import ConfigError, SwarmError
from bt_p2p.protocol.address import parse_peer_address
from bt_p2p.swarm.listen import check_port_is_free
from bt_p2p.swarm.process import SwarmPeer
from node.rebuild import Supervisor
from node.stop import StopRequest

_TRIES = 10
_RETRY_S = 1.0
"""The port of processes that were just killed may be in use a little longer."""


def free_port(host: str, port: int, supervisor: Supervisor, stop: StopRequest) -> int:
    """Where to listen: at the port the user chose, or where the node listened before its rebuild.

    Args:
        host: IP address.
        port: as the user gave it; 0 for any.
        supervisor: knows what was before.
        stop: ends the wait for a port that is not free yet.

    Raises:
        ConfigError: the port is in use, or may not be used.
        SwarmError: the port of a rebuilt node is still in use.
    """
    if supervisor.last is None:
        check_port_is_free(host, port)
        return port
    wanted = port or int(supervisor.kept.get("port", "0"))
    problem = ""
    for _ in range(_TRIES):
        try:
            check_port_is_free(host, wanted)
            return wanted
        except ConfigError as exc:
            problem = str(exc)
            stop.event.wait(_RETRY_S)
    if port:
        raise SwarmError(problem)
    return 0  # others learn of the new one


def listening_port(peer: SwarmPeer, port: int, announce: Sequence[str]) -> int:
    """Where a peer listens; 0 if that cannot be told from what it announces."""
    addresses = [] if announce or peer.places is not None else peer.addresses()
    return port or (parse_peer_address(addresses[0]).port if addresses else 0)
