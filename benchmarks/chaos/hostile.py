"""A client that sends garbage to volunteers.

    python -m benchmarks.chaos.hostile ADDRESS

Enters the swarm through an address. Every line on stdin, {"peer_id": ..., "port": ..., "seed": ...},
is one attack on one peer; a number in JSON says how many streams could be opened for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from benchmarks.chaos.frames import bad_frames
from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.swarm.block_rpc import PROTOCOL_NAME
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer

_WAIT_S = 2.0
_ATTACK_TIMEOUT_S = 60.0
_IDLE_STREAMS = 30


async def attack(peer: SwarmPeer, peer_id: str, port: int, seed: int) -> int:
    """Everything at once, on streams and on the bare port; how many streams could be opened."""
    frames = bad_frames(seed)
    results = await asyncio.gather(
        *(_send_on_stream(peer, peer_id, frame) for frame in frames),
        *(_send_on_stream(peer, peer_id, b"") for _ in range(_IDLE_STREAMS)),
        *(_send_to_port(port, frame) for frame in frames[:3]),
        return_exceptions=True,
    )
    return sum(result is True for result in results)


async def _send_on_stream(peer: SwarmPeer, peer_id: str, data: bytes) -> bool:
    """Open, send, read what comes back until it ends, and leave without a word."""
    target: Any = type(peer.p2p.peer_id).from_base58(peer_id)
    async with asyncio.timeout(_WAIT_S * 2):
        _, reader, writer = await peer.p2p.call_binary_stream_handler(target, PROTOCOL_NAME)
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(_WAIT_S):
            while await reader.read(1 << 16):
                pass
    except (TimeoutError, OSError):
        pass  # it waits for more, or has broken the stream: both are right
    finally:
        writer.close()
    return True


async def _send_to_port(port: int, data: bytes) -> bool:
    """Bytes that are not even libp2p."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError):
        writer.write(data)
        await writer.drain()
    writer.close()
    return False


def main() -> None:
    """See the module."""
    peer = start_peer(
        PeerOptions(initial_peers=tuple(parse_peer_addresses(sys.argv[1:])), is_client=True)
    )
    out = os.fdopen(os.dup(1), "w")
    try:
        for line in sys.stdin:
            order = json.loads(line)
            try:
                count = peer.loop.run(
                    attack(peer, order["peer_id"], order["port"], order["seed"]),
                    timeout_s=_ATTACK_TIMEOUT_S,
                )
            except TimeoutError:
                count = 0
            out.write(f"{json.dumps(count)}\n")
            out.flush()
    finally:
        peer.stop()


if __name__ == "__main__":
    main()
