"""One holder of one block, which serves and does not train.

    python -m benchmarks.chain.holder

Reads a `HolderSpec` as a line of JSON from stdin, prints {"peer_id": ...} as another once it
serves, and ends with stdin or at SIGTERM.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch

import torch
from pydantic import BaseModel, ConfigDict

from bt_p2p.chain.service import LocalBlockService
from bt_p2p.model.block import initial_block, weight_specs
from bt_p2p.model.wire import decode_tensors
from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.block_rpc import HivemindBlockServer
from bt_p2p.swarm.process import PeerOptions, start_peer

_START_TIMEOUT_S = 10.0
_PR_SET_PDEATHSIG = 1


class HolderSpec(BaseModel):
    """What a holder is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest: RunManifest
    block: int
    weights_path: Path | None
    """Safetensors; None serves the run's initial weights."""
    identity_path: Path
    port: int
    announced_port: int
    """Where others dial: the relay's."""
    initial_peers: tuple[str, ...] = ()


def serve(spec: HolderSpec) -> None:
    """Serve until stdin ends."""
    manifest = spec.manifest
    if spec.weights_path is None:
        weights = initial_block(manifest, spec.block).weights()
    else:
        weights = decode_tensors(spec.weights_path.read_bytes(), weight_specs(manifest))
    service = LocalBlockService(manifest, spec.block)
    service.adopt(weights, 0)
    peer = start_peer(
        PeerOptions(
            initial_peers=tuple(parse_peer_addresses(spec.initial_peers)),
            identity_path=spec.identity_path,
            listen=(f"/ip4/127.0.0.1/tcp/{spec.port}",),
            announce=(f"/ip4/127.0.0.1/tcp/{spec.announced_port}",),
        )
    )
    try:
        server = HivemindBlockServer(peer.p2p, service)
        peer.loop.run(server.start(), timeout_s=_START_TIMEOUT_S)
        sys.stdout.write(json.dumps({"peer_id": peer.peer_id}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        peer.stop()


def main() -> None:
    """See the module."""
    torch.set_num_threads(1)
    if sys.platform == "linux":  # a frozen holder does not see its stdin end
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for whoever started this
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    line = sys.stdin.readline()
    if line:
        serve(HolderSpec.model_validate_json(line))


if __name__ == "__main__":
    main()
