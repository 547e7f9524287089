"""Multiaddrs that users type and peers announce, checked before any network is touched."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import base58

from bt_p2p.errors import ConfigError

EXAMPLE = "/ip4/203.0.113.7/tcp/31337/p2p/12D3KooW…"
_HOST_PROTOCOLS = ("ip4", "ip6", "dns", "dns4", "dns6", "dnsaddr")
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*\.?")
_EXTRA_PART = re.compile(r"[A-Za-z0-9.-]{1,128}")
_SEPARATORS = re.compile(r"[\s,;]+")
_DOCKER_BRIDGE = ipaddress.ip_network("172.17.0.0/16")
"""What Docker gives its containers unless told otherwise; the host's own side of it is in there, too."""
_RELAY_PART = "p2p-circuit"
_ANY_PEER_ID = "12D3KooWCtcgQySagj3N4MLdcC1hYb8M7DjjkfTC6qwJmeYH91Gp"
"""A valid one of nobody, where an address is checked before its peer id is known."""
_NO_ZONE = "use the machine's global or local-network address"
_PORT = re.compile(r"[0-9]{1,5}")
_MAX_PEER_ID_CHARS = 64
"""Decoding base58 takes time by the square of its length."""
_PASTE_MARKS = "[](){}<>\"'`"


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerAddress:
    """Where to dial, and whom to expect there."""

    text: str
    """The whole multiaddr."""
    host_protocol: str
    host: str
    transport: str
    """tcp or udp."""
    port: int
    peer_id: str

    @property
    def is_relayed(self) -> bool:
        """Whether it leads through another peer, who is named in it."""
        return f"/{_RELAY_PART}/" in self.text

    @property
    def answering_peer_id(self) -> str:
        """Who listens there: the peer itself, or the relay before it."""
        return self.text.split("/p2p/")[1].partition("/")[0]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can dial it."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")

    @property
    def is_private(self) -> bool:
        """Whether only the local network can dial it."""
        try:
            return ipaddress.ip_address(self.host).is_private
        except ValueError:
            return False

    @property
    def is_of_docker_bridge(self) -> bool:
        """Whether it is in the network that only this machine's own containers see."""
        try:
            return ipaddress.ip_address(self.host) in _DOCKER_BRIDGE
        except ValueError:
            return False

    @property
    def remark(self) -> str:
        """In plain words, who can dial it if not everybody; empty for a public address."""
        if self.is_loopback:
            return "this machine only"
        if self.is_of_docker_bridge:
            return "this machine and its containers only"
        return "this network only" if self.is_private else ""


def parse_initial_peers(texts: Sequence[str]) -> list[PeerAddress]:
    """Parse what was given as initial peers, of which there must be one if anything was given.

    Raises:
        ConfigError: an item is malformed, or nothing but spaces and commas was given.
    """
    found = parse_peer_addresses(texts)
    if texts and not found:
        raise ConfigError(
            f"--initial-peers {' '.join(texts)[:200]!r} names no peer; leave it away to start "
            f"alone, or give an address; an example: {EXAMPLE}"
        )
    return found


def parse_peer_addresses(texts: Iterable[str], *, own_peer_id: str = "") -> list[PeerAddress]:
    """Parse what a user gave as initial peers: split at commas and spaces, strip paste marks.

    Repeats and one's own address are dropped.

    Raises:
        ConfigError: names the first bad item, the bad part and a valid example.
    """
    found: dict[str, PeerAddress] = {}
    for text in texts:
        for raw in _SEPARATORS.split(text):
            item = raw.strip(_PASTE_MARKS)
            if item:
                address = parse_peer_address(item)
                if address.peer_id != own_peer_id:
                    found.setdefault(address.text, address)
    return list(found.values())


def parse_peer_address(text: str) -> PeerAddress:
    """Parse one full peer multiaddr.

    Raises:
        ConfigError: names the address, the bad part and a valid example.
    """
    parts = text.rstrip("/").split("/")
    if parts[0] != "" or len(parts) < 7:
        raise _bad(text, "it needs the form /<ip4|ip6|dns>/<host>/<tcp|udp>/<port>/p2p/<peer id>")
    _, host_protocol, host, transport, port_text, *rest = parts
    if host_protocol == "ip6zone":
        raise _bad(text, f"zone id '{host}' means nothing elsewhere; {_NO_ZONE}")
    if host_protocol not in _HOST_PROTOCOLS:
        raise _bad(text, f"'{host_protocol}' is not one of {', '.join(_HOST_PROTOCOLS)}")
    _check_host(text, host_protocol, host)
    if transport not in {"tcp", "udp"}:
        raise _bad(text, f"'{transport}' is not tcp or udp")
    if not _PORT.fullmatch(port_text) or not 1 <= int(port_text) <= 65535:
        raise _bad(text, f"port '{port_text}' is not a number from 1 to 65535")
    if rest[-2:-1] != ["p2p"]:
        raise _bad(text, "the peer id is missing; it ends in /p2p/<peer id>")
    peer_id = rest[-1]
    if not is_peer_id(peer_id):
        raise _bad(text, f"'{peer_id}' is not a peer id, or it is cut short")
    for part in rest[:-2]:
        if not _EXTRA_PART.fullmatch(part):
            raise _bad(text, f"'{part}' is not part of an address")
    return PeerAddress(
        text=text.rstrip("/"),
        host_protocol=host_protocol,
        host=host,
        transport=transport,
        port=int(port_text),
        peer_id=peer_id,
    )


def check_announced(text: str) -> None:
    """Refuse an address to announce that is not `/<ip4|ip6|dns>/<host>/<tcp|udp>/<port>`.

    Addresses that nobody can dial (0.0.0.0, port 0, link-local ones) are refused, too.

    Raises:
        ConfigError: names the address and the bad part.
    """
    stand_in = f"/p2p/{_ANY_PEER_ID}"
    try:
        parse_peer_address(text.rstrip("/") + stand_in)
    except ConfigError as exc:
        raise ConfigError(str(exc).replace(stand_in, "")) from exc


def is_peer_id(text: str) -> bool:
    """Whether the text is the base58 of an Ed25519 or sha256 multihash of the right length."""
    if len(text) > _MAX_PEER_ID_CHARS:
        return False
    try:
        data = base58.b58decode(text)
    except ValueError:
        return False
    if text != text.rstrip():  # b58decode ignores it
        return False
    return (len(data) == 38 and data[:2] == b"\x00\x24") or (
        len(data) == 34 and data[:2] == b"\x12\x20"
    )


def relay_address(relay: PeerAddress) -> str:
    """Where a peer without an address of its own is found: behind a relay. Without its peer id."""
    return f"{relay.text}/{_RELAY_PART}"


def dialable(addresses: Iterable[str]) -> list[str]:
    """Multiaddrs without those that cannot mean anything to others, as link-local ones."""
    return [text for text in addresses if _is_dialable(text)]


def routable_first(addresses: Iterable[str]) -> list[str]:
    """Sort multiaddrs for people to paste: public, local network, containers, this machine only."""

    def rank(text: str) -> int:
        try:
            address = parse_peer_address(text)
        except ConfigError:
            return 4
        if address.is_loopback:
            return 3
        if address.is_of_docker_bridge:
            return 2
        return 1 if address.is_private else 0

    return sorted(dict.fromkeys(addresses), key=rank)


def _check_host(text: str, protocol: str, host: str) -> None:
    if protocol in {"ip4", "ip6"}:
        if "%" in host:
            raise _bad(text, f"'{host}' has a zone id, which means nothing elsewhere; {_NO_ZONE}")
        try:
            address = ipaddress.ip_address(host)
        except ValueError as exc:
            raise _bad(text, f"'{host}' is not an address for /{protocol}") from exc
        if f"ip{address.version}" != protocol:
            raise _bad(text, f"'{host}' is an ip{address.version} address, not {protocol}")
        if address.is_unspecified:
            raise _bad(text, f"'{host}' can be listened on, but not dialled; use a real address")
        if address.is_link_local:
            raise _bad(text, f"'{host}' is link-local, good on one cable only; {_NO_ZONE}")
        if address.is_multicast:
            raise _bad(text, f"'{host}' is a multicast address; use the one of the machine")
    elif not _HOST_NAME.fullmatch(host):
        raise _bad(text, f"'{host}' is not a host name")


def _is_dialable(text: str) -> bool:
    try:
        parse_peer_address(text)
    except ConfigError:
        return False
    return True


def _bad(text: str, reason: str) -> ConfigError:
    return ConfigError(f"address {text[:200]!r} is not valid: {reason}; an example: {EXAMPLE}")
