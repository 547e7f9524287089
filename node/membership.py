"""What lets this node into a closed run: read from the user, and checked before it enters."""

from __future__ import annotations

from pathlib import Path

from bt_p2p.errors import ConfigError, ProtocolError
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.membership import check_membership, membership_of


def read_token(run_token: str | None, path: Path | None) -> str | None:
    """The token that the user gave, as text or in a file; None if there is none.

    Raises:
        ConfigError: both were given, or the file cannot be read.
    """
    if path is None:
        return run_token
    if run_token is not None:
        raise ConfigError("a run token is given twice; choose --run-token or --run-token-file")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"run token file {path} cannot be read: {exc}") from exc


def own_membership(
    manifest: RunManifest, peer_id: str, run_token: str | None, *, now_s: float
) -> bytes | None:
    """What this node shows to others of a closed run; None in an open one.

    Raises:
        ConfigError: there is no token, or it is not good here; says what to ask the owner for.
    """
    if not manifest.owner:
        return None
    ask = f"ask the owner of the run for a token for peer {peer_id}, and give it with --run-token"
    if run_token is None:
        raise ConfigError(f"run {manifest.run_id} is closed; {ask} or --run-token-file")
    membership = membership_of(run_token)
    try:
        check_membership(manifest, peer_id, membership, now_s=now_s)
    except ProtocolError as exc:
        raise ConfigError(f"the run token does not fit: {exc}; {ask}") from exc
    return membership
