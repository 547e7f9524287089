"""Who answers at a TCP address, proven by libp2p's own TLS handshake and without the daemon.

The daemon reuses its open connections and tells only that something failed. A handshake of our own
is a fresh dial and shows the peer id, so that a wrong peer is told from a closed port.

The wire: multistream-select agrees on /tls/1.0.0, then comes TLS 1.3, in which the listener shows a
certificate signed with its peer's key (libp2p's "TLS handshake" specification).
"""

from __future__ import annotations

import asyncio
import ssl

import base58
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa

from bt_p2p.errors import WireFormatError

_MULTISTREAM = b"/multistream/1.0.0\n"
_TLS = b"/tls/1.0.0\n"
_REFUSED = b"na\n"
_MAX_LINE_SIZE_BYTES = 127
"""Longer ones would need a second length byte; what we await is shorter."""
_EXTENSION = x509.ObjectIdentifier("1.3.6.1.4.1.53594.1.1")
_SIGNED = b"libp2p-tls-handshake:"
# protobuf PublicKey { Type (field 1); Data (field 2) }
_ED25519_KEY = bytes([0x08, 0x01, 0x12, 0x20])
_RSA_KEY = bytes([0x08, 0x00, 0x12])
_MAX_INLINE_KEY_SIZE_BYTES = 42
"""Keys up to this size are the peer id themselves; others are hashed."""


async def peer_id_at(host: str, port: int, *, timeout_s: float) -> str:
    """Dial, and return the base58 id of the peer that listens; empty if it offers no TLS.

    Raises:
        TimeoutError: no connection, or no handshake, within the time.
        WireFormatError: something else than a libp2p peer listens there.
        OSError: the dial failed.
    """
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(_line(_MULTISTREAM) + _line(_TLS))
            if await _read_line(reader) != _MULTISTREAM:
                raise WireFormatError("another program than a peer listens there")
            answer = await _read_line(reader)
            if answer == _REFUSED:
                return ""
            if answer != _TLS:
                raise WireFormatError("the peer there breaks the protocol")
            try:
                await writer.start_tls(_tls_context())
            except ssl.SSLError as exc:
                raise WireFormatError(f"the TLS handshake failed there ({exc.reason})") from exc
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return _peer_id_of(certificate)
        except (ConnectionError, asyncio.IncompleteReadError) as exc:
            raise WireFormatError("another program than a peer listens there") from exc
        finally:
            writer.transport.abort()


def _line(text: bytes) -> bytes:
    return bytes([len(text)]) + text


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    (size,) = await reader.readexactly(1)
    if not 0 < size <= _MAX_LINE_SIZE_BYTES:
        raise WireFormatError("another program than a peer listens there")
    return await reader.readexactly(size)


def _tls_context() -> ssl.SSLContext:
    """The certificate is signed by the peer's own key, which `_peer_id_of` checks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["libp2p"])
    return context


def _peer_id_of(certificate: bytes) -> str:
    """The peer id that a certificate proves.

    TLS has proven that the listener has the certificate's key; the extension proves that the peer
    vouches for that key.
    """
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        extension = parsed.extensions.get_extension_for_oid(_EXTENSION).value
        if not isinstance(extension, x509.UnrecognizedExtension):
            raise WireFormatError("the peer's certificate is malformed")
        key, signature = _two_octet_strings(extension.value)
        own = parsed.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _verify(key, signature, _SIGNED + own)
    except (ValueError, IndexError, x509.ExtensionNotFound, InvalidSignature) as exc:
        raise WireFormatError("the peer's certificate proves no peer id") from exc
    if len(key) <= _MAX_INLINE_KEY_SIZE_BYTES:
        return base58.b58encode(bytes([0x00, len(key)]) + key).decode()
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key)
    return base58.b58encode(bytes([0x12, 0x20]) + digest.finalize()).decode()


def _verify(key: bytes, signature: bytes, message: bytes) -> None:
    if key.startswith(_ED25519_KEY):
        public = ed25519.Ed25519PublicKey.from_public_bytes(key[len(_ED25519_KEY) :])
        public.verify(signature, message)
        return
    if key.startswith(_RSA_KEY):
        _, start = _read_size(key, len(_RSA_KEY), is_der=False)
        loaded = serialization.load_der_public_key(key[start:])
        if isinstance(loaded, rsa.RSAPublicKey):
            loaded.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
            return
    raise WireFormatError("the peer there has a key of a kind that is not used here")


def _two_octet_strings(data: bytes) -> tuple[bytes, bytes]:
    """DER: SEQUENCE { OCTET STRING, OCTET STRING }."""
    found = []
    if data[0] != 0x30:
        raise ValueError("not a sequence")
    _, position = _read_size(data, 1)
    for _ in range(2):
        if data[position] != 0x04:
            raise ValueError("not an octet string")
        size, position = _read_size(data, position + 1)
        found.append(data[position : position + size])
        position += size
    return found[0], found[1]


def _read_size(data: bytes, position: int, *, is_der: bool = True) -> tuple[int, int]:
    """A length and the position behind it: DER's, or protobuf's varint."""
    first = data[position]
    if first < 0x80:
        return first, position + 1
    if is_der:
        num_bytes = first & 0x7F
        end = position + 1 + num_bytes
        return int.from_bytes(data[position + 1 : end]), end
    return (first & 0x7F) | data[position + 1] << 7, position + 2
