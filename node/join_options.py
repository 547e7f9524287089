"""What the user of `bt-node join` asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bt_p2p.protocol.address import PeerAddress
from node.http.place import HttpPlace
from node.manners.settings import Settings
from node.state_dir import StateDir


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinOptions:
    """What the user asked for."""

    initial_peers: tuple[PeerAddress, ...]
    state_dir: StateDir
    identity_path: Path | None
    manifest_path: Path | None
    run: str | None
    block: int | None
    span: range | None
    data: Path | None
    host: str
    port: int
    announce: tuple[str, ...]
    is_outbound_only: bool
    """Listen nowhere, and be found behind relays."""
    device: str
    run_token: str | None
    """Lets this node into a closed run."""
    max_rounds: int | None
    """End after this many rounds; None goes on until a signal."""
    settings: Settings
    """What the node may take of the machine."""
    http: HttpPlace | None
    """Where figures and health are told; None for nowhere."""
