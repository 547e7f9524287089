"""Who a peer is: one Ed25519 key in one file, in libp2p's own format.

An Ed25519 peer id contains the public key (libp2p "identity" multihash), so a record that carries
its author's peer id needs no key beside it to be checked.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import base58
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bt_p2p.errors import ConfigError

# protobuf PrivateKey { Type = Ed25519 (field 1); Data = 64 bytes (field 2) }
_PRIVATE_PREFIX = bytes([0x08, 0x01, 0x12, 0x40])
# identity multihash over protobuf PublicKey { Type = Ed25519; Data = 32 bytes }
_PEER_ID_PREFIX = bytes([0x00, 0x24, 0x08, 0x01, 0x12, 0x20])
_PEER_ID_SIZE_BYTES = len(_PEER_ID_PREFIX) + 32
_MAX_PEER_ID_CHARS = 64


class PeerIdentity:
    """A peer's private key and the peer id that follows from it."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        """Wrap a key; use `load` or `generate` to get one."""
        self._private_key = private_key
        self.peer_id_bytes = _PEER_ID_PREFIX + private_key.public_key().public_bytes_raw()
        self.peer_id = base58.b58encode(self.peer_id_bytes).decode()

    @classmethod
    def generate(cls) -> PeerIdentity:
        """Make a fresh identity."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> PeerIdentity:
        """Read a key file.

        Raises:
            ConfigError: the file cannot be read or holds no Ed25519 key.
        """
        try:
            data = path.read_bytes()
        except OSError as exc:
            raise ConfigError(
                f"identity {path} cannot be read ({exc.strerror}); fix its owner and mode, or name "
                f"another file with --identity"
            ) from exc
        private, public = data[len(_PRIVATE_PREFIX) :][:32], data[len(_PRIVATE_PREFIX) :][32:]
        if not data.startswith(_PRIVATE_PREFIX) or len(public) != 32:
            raise ConfigError(
                f"identity {path} holds no libp2p Ed25519 key ({len(data)} bytes); restore your "
                f"backup, or move the file away to get a new identity"
            )
        identity = cls(Ed25519PrivateKey.from_private_bytes(private))
        if identity.peer_id_bytes[-32:] != public:
            raise ConfigError(
                f"identity {path} is damaged: its two halves do not match; restore your backup, or "
                f"move the file away to get a new identity"
            )
        return identity

    def save(self, path: Path) -> None:
        """Write the key file, readable by its owner only, never over an existing one.

        It is there whole or not at all, also after a kill or on a full disk.

        Raises:
            ConfigError: the folder cannot be written, or the file exists.
        """
        data = _PRIVATE_PREFIX + self._private_key.private_bytes(
            serialization.Encoding.Raw,
            serialization.PrivateFormat.Raw,
            serialization.NoEncryption(),
        )
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data + self.peer_id_bytes[-32:])
                    file.flush()
                    os.fsync(descriptor)
                _put_in_place(partial, path)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as exc:
            raise ConfigError(
                f"identity {path} cannot be written ({exc.strerror}); choose another place with "
                f"--state-dir or --identity"
            ) from exc

    def sign(self, message: bytes) -> bytes:
        """The 64-byte Ed25519 signature of a message."""
        return self._private_key.sign(message)


def _put_in_place(partial: Path, path: Path) -> None:
    """Give a finished file its name, unless that is taken."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        partial.replace(path)


def load_or_create_identity(path: Path) -> tuple[PeerIdentity, bool]:
    """The identity in a file, made there first if it is missing; says whether it was made."""
    try:
        is_there = path.exists()
    except OSError:  # no right to look, or no possible name; reading it says which
        is_there = True
    if is_there:
        return PeerIdentity.load(path), False
    identity = PeerIdentity.generate()
    identity.save(path)
    return identity, True


def signature_is_valid(peer_id_bytes: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the peer with this id signed the message."""
    if len(peer_id_bytes) != _PEER_ID_SIZE_BYTES or not peer_id_bytes.startswith(_PEER_ID_PREFIX):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(peer_id_bytes[-32:]).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def holds_key(peer_id: str) -> bool:
    """Whether the text is the id of an Ed25519 key, which signatures can be checked with."""
    if len(peer_id) > _MAX_PEER_ID_CHARS or peer_id != peer_id.rstrip():  # base58 ignores spaces
        return False
    try:
        data = peer_id_to_bytes(peer_id)
    except ValueError:
        return False
    return len(data) == _PEER_ID_SIZE_BYTES and data.startswith(_PEER_ID_PREFIX)


def peer_id_to_bytes(peer_id: str) -> bytes:
    """The bytes behind a base58 peer id.

    Raises:
        ValueError: not base58.
    """
    return base58.b58decode(peer_id)


def short_peer_id(peer_id: str) -> str:
    """How peers are shown to people: the last six characters."""
    return f"…{peer_id[-6:]}"
