"""bt_p2p.swarm.peer_probe: a certificate proves a peer id, or nothing."""

from __future__ import annotations

import contextlib
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.errors import WireFormatError
from bt_p2p.swarm.peer_probe import _EXTENSION, _SIGNED, _peer_id_of
from bt_p2p.testing.tiny import tiny_identity

SIGNER = tiny_identity(0)
OTHER = tiny_identity(1)
KEY = ec.generate_private_key(ec.SECP256R1())
SPKI = KEY.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
)


def octets(data: bytes) -> bytes:
    """DER octet string of a short text."""
    return bytes([0x04, len(data)]) + data


def extension(public: bytes, signature: bytes) -> bytes:
    """DER: SEQUENCE { OCTET STRING, OCTET STRING }."""
    inner = octets(public) + octets(signature)
    return bytes([0x30, len(inner)]) + inner


def certificate(content: bytes) -> bytes:
    """A self-signed certificate with this in libp2p's extension."""
    name = x509.Name([])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    built = (
        x509.CertificateBuilder(name, name, KEY.public_key(), 1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .add_extension(x509.UnrecognizedExtension(_EXTENSION, content), critical=True)
        .sign(KEY, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.DER)


def public_of(peer_id_bytes: bytes) -> bytes:
    """The protobuf public key inside an identity multihash."""
    return peer_id_bytes[2:]


def test_the_extension_proves_whose_certificate_it_is() -> None:
    """The peer has signed the certificate's key."""
    good = extension(public_of(SIGNER.peer_id_bytes), SIGNER.sign(_SIGNED + SPKI))
    assert SIGNER.peer_id == _peer_id_of(certificate(good))


@pytest.mark.parametrize(
    "content",
    [
        extension(public_of(OTHER.peer_id_bytes), SIGNER.sign(_SIGNED + SPKI)),
        extension(public_of(SIGNER.peer_id_bytes), SIGNER.sign(_SIGNED + SPKI[:-1])),
        extension(public_of(SIGNER.peer_id_bytes), b""),
        extension(b"\x08\x02\x12\x01x", SIGNER.sign(_SIGNED + SPKI)),
        extension(b"\x08\x00\x12\x01x", SIGNER.sign(_SIGNED + SPKI)),
        b"\x30",
        b"",
    ],
    ids=["another's", "of other bytes", "unsigned", "secp256k1", "no RSA", "cut short", "empty"],
)
def test_a_wrong_signature_or_key_proves_nothing(content: bytes) -> None:
    """Another peer's, of other bytes, none, of a kind not used, or cut short."""
    with pytest.raises(WireFormatError):
        _peer_id_of(certificate(content))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_raise_nothing_else(data: bytes) -> None:
    """A stranger writes them."""
    for written in (data, certificate(data)):
        with contextlib.suppress(WireFormatError):
            _peer_id_of(written)
