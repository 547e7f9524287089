"""`bt-node token issue`: the owner of a closed run signs for a peer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer

from bt_p2p.clock import Clock, SystemClock
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.address import is_peer_id
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.membership import issue_membership, token_of
from node.manifests import read_manifest

_DAY_S = 86400


def issue_token(
    *, owner_key: Path, manifest: Path, peer: str, days: int, clock: Clock | None = None
) -> None:
    """Print a token.

    Raises:
        ConfigError: the key is not the owner's, or an argument is wrong.
    """
    owner, run = PeerIdentity.load(owner_key), read_manifest(manifest)
    if not run.owner:
        raise ConfigError(
            f"run {run.run_id} is open: everybody may join without a token; a closed run is founded "
            f"with: bt-node init --owner-key {owner_key}"
        )
    if run.owner != owner.peer_id:
        raise ConfigError(
            f"{owner_key} is the key of {owner.peer_id}, but run {run.run_id} belongs to {run.owner}"
        )
    if not is_peer_id(peer):
        raise ConfigError(f"'{peer:.80}' is not a peer id; ask the volunteer, whose node prints it")
    expires_at_s = int((clock or SystemClock()).now_s()) + days * _DAY_S
    membership = issue_membership(owner, run_id=run.run_id, peer_id=peer, expires_at_s=expires_at_s)
    typer.echo(token_of(membership))
    until = datetime.fromtimestamp(expires_at_s, tz=UTC).date().isoformat()
    typer.echo(f"for peer {peer} in run {run.run_id}, until {until}", err=True)
