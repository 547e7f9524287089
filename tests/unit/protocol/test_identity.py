"""bt_p2p.protocol.identity: key files, peer ids and signatures."""

from __future__ import annotations

import os
from pathlib import Path

import base58
import pytest

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.identity import (
    PeerIdentity,
    load_or_create_identity,
    peer_id_to_bytes,
    short_peer_id,
    signature_is_valid,
)
from bt_p2p.testing.tiny import tiny_identity
from tests.small_disk import limited_files

ME, OTHER = tiny_identity(0), tiny_identity(1)


def saved(path: Path) -> bytes:
    """The bytes of a saved key file."""
    ME.save(path)
    return path.read_bytes()


def test_an_identity_survives_its_file(tmp_path: Path) -> None:
    """Restarted, a peer is the same peer."""
    ME.save(tmp_path / "deep" / "identity.key")
    assert ME.peer_id == PeerIdentity.load(tmp_path / "deep" / "identity.key").peer_id


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_is_for_its_owner_only(tmp_path: Path, umask: int) -> None:
    """Whatever the umask."""
    before = os.umask(umask)
    try:
        ME.save(tmp_path / "key")
    finally:
        os.umask(before)
    assert 0o600 == (tmp_path / "key").stat().st_mode & 0o777


def test_the_file_has_libp2ps_format(tmp_path: Path) -> None:
    """protobuf PrivateKey of type Ed25519 with 64 bytes: private half, public half."""
    data = saved(tmp_path / "key")
    assert (68, bytes([0x08, 0x01, 0x12, 0x40])) == (len(data), data[:4])
    assert ME.peer_id_bytes[-32:] == data[-32:]


def test_the_peer_id_is_an_identity_multihash_of_the_public_key() -> None:
    """12D3KooW… is what libp2p makes of the same key."""
    assert bytes([0x00, 0x24, 0x08, 0x01, 0x12, 0x20]) == ME.peer_id_bytes[:6]
    assert (38, "12D3KooW") == (len(ME.peer_id_bytes), ME.peer_id[:8])
    assert ME.peer_id_bytes == base58.b58decode(ME.peer_id) == peer_id_to_bytes(ME.peer_id)


def test_generated_identities_differ() -> None:
    """Keys are random."""
    assert PeerIdentity.generate().peer_id != PeerIdentity.generate().peer_id


@pytest.mark.parametrize("size", [0, 1, 4, 36, 67])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    """The message counts the bytes and says what to do."""
    path = tmp_path / "key"
    path.write_bytes(saved(tmp_path / "whole")[:size])
    with pytest.raises(ConfigError, match=rf"\({size} bytes\); restore your backup"):
        PeerIdentity.load(path)


@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, index: int) -> None:
    """RSA keys and other files start differently."""
    data = bytearray(saved(tmp_path / "whole"))
    data[index] ^= 1
    (tmp_path / "key").write_bytes(data)
    with pytest.raises(ConfigError, match="holds no libp2p Ed25519 key"):
        PeerIdentity.load(tmp_path / "key")


@pytest.mark.parametrize("index", [4, 35, 36, 67])
def test_halves_that_do_not_match_are_refused(tmp_path: Path, index: int) -> None:
    """A flipped bit in either half is damage, not another peer."""
    data = bytearray(saved(tmp_path / "whole"))
    data[index] ^= 1
    (tmp_path / "key").write_bytes(data)
    with pytest.raises(ConfigError, match="is damaged: its two halves do not match"):
        PeerIdentity.load(tmp_path / "key")


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """Nothing follows the key."""
    (tmp_path / "key").write_bytes(saved(tmp_path / "whole") + b"\n")
    with pytest.raises(ConfigError, match=r"\(69 bytes\)"):
        PeerIdentity.load(tmp_path / "key")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """The reason is the system's."""
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        load_or_create_identity(tmp_path)


def test_a_missing_file_is_refused_by_load(tmp_path: Path) -> None:
    """Only `load_or_create_identity` makes one."""
    with pytest.raises(ConfigError, match="No such file"):
        PeerIdentity.load(tmp_path / "key")


def test_a_name_the_system_refuses_is_a_config_error(tmp_path: Path) -> None:
    """Not even to look whether it exists is possible."""
    with pytest.raises(ConfigError, match="File name too long"):
        load_or_create_identity(tmp_path / ("x" * 300))


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    """A key lost is a peer lost."""
    data = saved(tmp_path / "key")
    with pytest.raises(ConfigError, match="cannot be written"):
        OTHER.save(tmp_path / "key")
    assert data == (tmp_path / "key").read_bytes()


def test_a_link_to_nowhere_is_not_followed(tmp_path: Path) -> None:
    """No key is made where somebody else points."""
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be written"):
        load_or_create_identity(tmp_path / "key")
    assert not (tmp_path / "elsewhere").exists()


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    """The second start finds what the first one made."""
    first, is_new = load_or_create_identity(tmp_path / "key")
    second, is_new_again = load_or_create_identity(tmp_path / "key")
    assert (True, False, first.peer_id) == (is_new, is_new_again, second.peer_id)


def test_signatures_are_checked_with_the_key_in_the_peer_id() -> None:
    """Message, signer and signature belong together."""
    signature = ME.sign(b"message")
    assert 64 == len(signature)
    assert signature_is_valid(ME.peer_id_bytes, b"message", signature)
    assert not signature_is_valid(OTHER.peer_id_bytes, b"message", signature)
    assert not signature_is_valid(ME.peer_id_bytes, b"massage", signature)


@pytest.mark.parametrize("signature", [b"", b"\x00" * 63, b"\x00" * 64, b"\x00" * 65])
def test_other_signatures_are_invalid(signature: bytes) -> None:
    """Of any length."""
    assert not signature_is_valid(ME.peer_id_bytes, b"message", signature)


@pytest.mark.parametrize(
    "peer_id_bytes",
    [b"", ME.peer_id_bytes[:-1], ME.peer_id_bytes + b"\x00", b"\x12\x20" + bytes(36), bytes(38)],
)
def test_ids_without_a_key_inside_sign_nothing(peer_id_bytes: bytes) -> None:
    """RSA peer ids are hashes."""
    assert not signature_is_valid(peer_id_bytes, b"message", ME.sign(b"message"))


def test_an_id_that_is_not_base58_is_a_value_error() -> None:
    """0, O, I and l are no digits."""
    with pytest.raises(ValueError, match="Invalid character"):
        peer_id_to_bytes("0OIl")


def test_people_see_the_end_of_a_peer_id() -> None:
    """All ids start alike."""
    assert f"…{ME.peer_id[-6:]}" == short_peer_id(ME.peer_id)


def test_a_full_disk_leaves_no_half_identity(tmp_path: Path) -> None:
    """A torn key file would be taken for damage at the next start."""
    with limited_files(10), pytest.raises(ConfigError, match="cannot be written"):
        ME.save(tmp_path / "key")
    assert [] == list(tmp_path.iterdir())
    _, is_new = load_or_create_identity(tmp_path / "key")
    assert is_new


def test_without_hard_links_a_file_is_not_overwritten_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have none."""

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    ME.save(tmp_path / "key")
    with pytest.raises(ConfigError, match="File exists"):
        OTHER.save(tmp_path / "key")
    assert ME.peer_id == PeerIdentity.load(tmp_path / "key").peer_id
    assert ["key"] == [path.name for path in tmp_path.iterdir()]
