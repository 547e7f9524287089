"""Who may hold blocks of a closed run: peers for whom its owner has signed, until a day.

The manifest names the owner, an Ed25519 peer id. A membership is msgpack of [expiry, signature]; the
signature is over the run, the peer and the expiry. So it is no secret: it helps nobody but the peer it
names, which proves its own id with every lease and every connection. As text it is called a token.
"""

from __future__ import annotations

import base64
import binascii

from bt_p2p.errors import ConfigError, RecordRejectedError, WireFormatError
from bt_p2p.protocol import wire
from bt_p2p.protocol.identity import (
    PeerIdentity,
    peer_id_to_bytes,
    short_peer_id,
    signature_is_valid,
)
from bt_p2p.protocol.limits import MAX_CLOCK_SKEW_S, MAX_MEMBERSHIP_SIZE_BYTES
from bt_p2p.protocol.manifest import RunManifest

_DOMAIN = b"bt-p2p membership\0"


def issue_membership(owner: PeerIdentity, *, run_id: str, peer_id: str, expires_at_s: int) -> bytes:
    """Sign for a peer."""
    signature = owner.sign(_signed_bytes(run_id, peer_id, expires_at_s))
    return wire.pack([expires_at_s, signature])


def check_membership(
    manifest: RunManifest, peer_id: str, membership: object, *, now_s: float
) -> None:
    """Whether a peer may hold blocks of a run; of an open run everybody may.

    Args:
        manifest: of the run.
        peer_id: who shows it, proven.
        membership: what was shown; None is nothing.
        now_s: DHT time.

    Raises:
        WireFormatError: malformed.
        RecordRejectedError: none was shown, it is for another peer or run, or it has expired.
    """
    if not manifest.owner:
        return
    if membership is None:
        raise RecordRejectedError(f"run {manifest.run_id} is closed, and no membership is shown")
    if not isinstance(membership, bytes):
        raise WireFormatError(f"a membership is bytes, not {type(membership).__name__}")
    match wire.unpack(membership, max_size_bytes=MAX_MEMBERSHIP_SIZE_BYTES):
        case [expires_at_s, bytes(signature)] if type(expires_at_s) is int:
            signed = _signed_bytes(manifest.run_id, peer_id, expires_at_s)
        case _:
            raise WireFormatError("a membership is a list of expiry and signature")
    if not signature_is_valid(peer_id_to_bytes(manifest.owner), signed, signature):
        raise RecordRejectedError(
            f"the membership is not signed for peer {short_peer_id(peer_id)} in run "
            f"{manifest.run_id} by the run's owner {short_peer_id(manifest.owner)}"
        )
    if expires_at_s + MAX_CLOCK_SKEW_S <= now_s:
        raise RecordRejectedError(
            f"the membership of peer {short_peer_id(peer_id)} has expired "
            f"{now_s - expires_at_s:.0f} s ago"
        )


def membership_expires_at_s(membership: bytes) -> int:
    """When a membership that was checked expires, in DHT time.

    Raises:
        WireFormatError: it was not checked, and is malformed.
    """
    match wire.unpack(membership, max_size_bytes=MAX_MEMBERSHIP_SIZE_BYTES):
        case [int(expires_at_s), bytes()]:
            return expires_at_s
        case _:
            raise WireFormatError("a membership is a list of expiry and signature")


def token_of(membership: bytes) -> str:
    """A membership as one word, for people to send."""
    return base64.urlsafe_b64encode(membership).decode()


def membership_of(token: str) -> bytes:
    """The membership in a word that somebody sent.

    Raises:
        ConfigError: it is not such a word.
    """
    try:
        found = base64.b64decode(token.strip(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ConfigError(f"{token.strip()[:20]!r} is not a run token; copy all of it") from exc
    if not 0 < len(found) <= MAX_MEMBERSHIP_SIZE_BYTES:
        raise ConfigError(f"a run token of {len(found)} bytes is not valid; copy all of it")
    return found


def _signed_bytes(run_id: str, peer_id: str, expires_at_s: int) -> bytes:
    return _DOMAIN + wire.pack([run_id, peer_id, expires_at_s])
