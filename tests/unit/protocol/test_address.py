"""bt_p2p.protocol.address: what people paste as initial peers."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.address import (
    EXAMPLE,
    check_announced,
    dialable,
    is_peer_id,
    parse_initial_peers,
    parse_peer_address,
    parse_peer_addresses,
    relay_address,
    routable_first,
)
from bt_p2p.testing.tiny import tiny_identity

PEER = tiny_identity(0).peer_id
OTHER = tiny_identity(1).peer_id
GOOD = f"/ip4/203.0.113.7/tcp/31337/p2p/{PEER}"
RSA_PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, ("ip4", "203.0.113.7", "tcp", 31337, PEER)),
        (f"/ip6/2001:db8::1/tcp/1/p2p/{PEER}", ("ip6", "2001:db8::1", "tcp", 1, PEER)),
        (f"/dns4/peer.example.org/tcp/65535/p2p/{PEER}", None),
        (f"/dns/localhost/tcp/4001/p2p/{PEER}", ("dns", "localhost", "tcp", 4001, PEER)),
        (f"/ip4/1.2.3.4/udp/4001/quic-v1/p2p/{PEER}", ("ip4", "1.2.3.4", "udp", 4001, PEER)),
        (f"/ip4/1.2.3.4/tcp/80/p2p/{RSA_PEER}", ("ip4", "1.2.3.4", "tcp", 80, RSA_PEER)),
        (
            f"/ip4/1.2.3.4/tcp/80/p2p/{OTHER}/p2p-circuit/p2p/{PEER}",
            ("ip4", "1.2.3.4", "tcp", 80, PEER),
        ),
    ],
)
def test_good_addresses_are_taken_apart(
    text: str, expected: tuple[str, str, str, int, str] | None
) -> None:
    """IPv4, IPv6, names, QUIC and relays."""
    address = parse_peer_address(text)
    if expected is None:
        expected = ("dns4", "peer.example.org", "tcp", 65535, PEER)
    found = (
        address.host_protocol,
        address.host,
        address.transport,
        address.port,
        address.peer_id,
    )
    assert (text, expected) == (address.text, found)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "it needs the form"),
        ("localhost:31337", "it needs the form"),
        ("/", "it needs the form"),
        ("/ip4/203.0.113.7/tcp/31337", "it needs the form"),
        ("/ip4/203.0.113.7/tcp/31337/p2p", "it needs the form"),
        (f"ip4/203.0.113.7/tcp/31337/p2p/{PEER}", "it needs the form"),
        (f"/ip/1.2.3.4/tcp/31337/p2p/{PEER}", "'ip' is not one of ip4, ip6"),
        (f"/ip4/203.0.113.7/tcp/31337/ipfs/{PEER}", "the peer id is missing"),
        (f"/ip4/203.0.113.7/tcp/31337/p2p/x/{PEER}", "the peer id is missing"),
        (GOOD[:-1], "not a peer id, or it is cut short"),
        (GOOD + "x", "not a peer id, or it is cut short"),
        (GOOD + " ", "not a peer id, or it is cut short"),
        (GOOD + ",", "not a peer id, or it is cut short"),
        (f"/ip4/203.0.113.7/tcp/99999/p2p/{PEER}", "port '99999'"),
        (f"/ip4/203.0.113.7/tcp/0/p2p/{PEER}", "port '0'"),
        (f"/ip4/203.0.113.7/tcp/-1/p2p/{PEER}", "port '-1'"),
        (f"/ip4/203.0.113.7/tcp/٣/p2p/{PEER}", "port '٣'"),
        (f"/ip4/203.0.113.7/tcp/{'1' * 5000}/p2p/{PEER}", "is not a number from 1 to 65535"),
        (f"/ip4/203.0.113.7/sctp/1/p2p/{PEER}", "'sctp' is not tcp or udp"),
        (f"/ip4/203.0.113/tcp/1/p2p/{PEER}", "'203.0.113' is not an address for /ip4"),
        (f"/ip4/::1/tcp/1/p2p/{PEER}", "'::1' is an ip6 address, not ip4"),
        (f"/ip6/1.2.3.4/tcp/1/p2p/{PEER}", "'1.2.3.4' is an ip4 address, not ip6"),
        (f"/ip6/fe80::1%eth0/tcp/1/p2p/{PEER}", "'fe80::1%eth0' has a zone id"),
        (f"/ip6zone/eth0/ip6/fe80::1/tcp/1/p2p/{PEER}", "zone id 'eth0' means nothing elsewhere"),
        (f"/ip6/fe80::1/tcp/1/p2p/{PEER}", "'fe80::1' is link-local"),
        (f"/ip4/169.254.3.4/tcp/1/p2p/{PEER}", "'169.254.3.4' is link-local"),
        (f"/ip4/0.0.0.0/tcp/1/p2p/{PEER}", "'0.0.0.0' can be listened on, but not dialled"),
        (f"/ip6/::/tcp/1/p2p/{PEER}", "'::' can be listened on, but not dialled"),
        (f"/ip4/224.0.0.1/tcp/1/p2p/{PEER}", "'224.0.0.1' is a multicast address"),
        (f"/dns4/-bad-/tcp/1/p2p/{PEER}", "'-bad-' is not a host name"),
        (f"/dns4//tcp/1/p2p/{PEER}", "'' is not a host name"),
        (f"/dns4/a;b/tcp/1/p2p/{PEER}", "'a;b' is not a host name"),
        (f"/ip4/1.2.3.4/tcp/1/$(reboot)/p2p/{PEER}", "'$(reboot)' is not part of an address"),
    ],
)
def test_bad_addresses_name_the_bad_part_and_an_example(text: str, part: str) -> None:
    """Whatever is wrong, the user sees a right one."""
    with pytest.raises(ConfigError) as caught:
        parse_peer_address(text)
    assert part in str(caught.value)
    assert str(caught.value).endswith(EXAMPLE)


@pytest.mark.parametrize(
    "texts",
    [
        [GOOD],
        [GOOD + "/"],
        [GOOD + " "],
        [GOOD + ","],
        [f"  {GOOD}\n"],
        [f"['{GOOD}']"],
        [f'["{GOOD}", "{GOOD}"]'],
        [f"<{GOOD}>;{GOOD}"],
        [GOOD, GOOD + "/"],
        [f"`{GOOD}`", "", " , "],
        [f"{GOOD},/ip4/10.0.0.1/tcp/1/p2p/{OTHER}"],
    ],
)
def test_pasted_lists_come_out_clean(texts: list[str]) -> None:
    """Quotes, brackets, commas, repeats and one's own address go."""
    assert [GOOD] == [item.text for item in parse_peer_addresses(texts, own_peer_id=OTHER)]


@pytest.mark.parametrize("texts", [[], [""], [" ,; "], ["[]"]])
def test_nothing_given_is_nothing_found(texts: list[str]) -> None:
    """Whether that is allowed is for the caller to say."""
    assert [] == parse_peer_addresses(texts)


def test_one_bad_item_in_a_list_is_named() -> None:
    """The good ones around it do not hide it."""
    with pytest.raises(ConfigError, match="'localhost:31337' is not valid"):
        parse_peer_addresses([GOOD, f"{GOOD} localhost:31337"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PEER, True),
        (RSA_PEER, True),
        (PEER[:-1], False),
        (PEER + " ", False),
        (PEER + "\u00a0", False),
        ("", False),
        ("é", False),
        ("0OIl", False),
    ],
)
def test_peer_ids_have_one_spelling(text: str, expected: bool) -> None:
    """Base58 of a multihash of the right length, without space around it."""
    assert expected == is_peer_id(text)


def test_addresses_are_sorted_by_who_can_dial_them() -> None:
    """The world, the local network, this machine; what is no address comes last."""
    public = f"/ip4/8.8.8.8/tcp/1/p2p/{PEER}"
    name = f"/dns4/example.org/tcp/1/p2p/{PEER}"
    private = f"/ip4/192.168.1.2/tcp/1/p2p/{PEER}"
    local = f"/ip6/fd00::1/tcp/1/p2p/{PEER}"
    loopback = f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}"
    loopback6 = f"/ip6/::1/tcp/1/p2p/{PEER}"
    docker = f"/ip4/172.17.0.1/tcp/1/p2p/{PEER}"
    mixed = ["junk", docker, loopback, private, loopback6, public, local, name, public]
    expected = [public, name, private, local, docker, loopback, loopback6, "junk"]
    assert expected == routable_first(mixed)


ADDRESS_LIKE = st.lists(
    st.sampled_from(
        ["ip4", "ip6", "dns", "1.2.3.4", "::1", "tcp", "udp", "1", "p2p", PEER, "", "%"]
    )
    | st.text(max_size=6),
    max_size=9,
).map("/".join)


@given(st.text(max_size=60) | ADDRESS_LIKE | ADDRESS_LIKE.map(lambda text: "/" + text))
def test_parsing_raises_only_config_errors(text: str) -> None:
    """People paste anything."""
    with contextlib.suppress(ConfigError):
        assert is_peer_id(parse_peer_address(text).peer_id)
    found, message = [], ""
    try:
        found = parse_peer_addresses([text])
    except ConfigError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1
    assert all(is_peer_id(address.peer_id) for address in found)
    assert [text] == routable_first([text])


@pytest.mark.parametrize("text", ["/ip4/203.0.113.7/tcp/31337", "/dns4/a.example/udp/1/quic-v1/"])
def test_addresses_to_announce_need_no_peer_id(text: str) -> None:
    """The node knows its own."""
    check_announced(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "203.0.113.7:31337",
        "/ip4/203.0.113.7/tcp/0",
        "/ip4/0.0.0.0/tcp/31337",
        "/ip6/fe80::1/tcp/31337",
    ],
)
def test_bad_addresses_to_announce_are_refused_without_the_stand_in(text: str) -> None:
    """The message shows what the user gave."""
    with pytest.raises(ConfigError, match="is not valid") as caught:
        check_announced(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("/ip4/8.8.8.8", ""),
        ("/dns4/example.org", ""),
        ("/ip4/192.168.1.2", "this network only"),
        ("/ip4/172.17.0.2", "this machine and its containers only"),
        ("/ip6/::1", "this machine only"),
    ],
)
def test_addresses_say_who_can_dial_them(host: str, expected: str) -> None:
    """So that nobody pastes a loopback address on another machine."""
    assert expected == parse_peer_address(f"{host}/tcp/1/p2p/{PEER}").remark


@pytest.mark.parametrize("texts", [[""], [" , "], ["[]", "''"]])
def test_initial_peers_that_name_nobody_are_refused(texts: list[str]) -> None:
    """Else a node would quietly start a swarm of its own."""
    with pytest.raises(ConfigError, match="names no peer"):
        parse_initial_peers(texts)
    assert [] == parse_initial_peers([])


def test_an_address_behind_a_relay_names_who_answers_there() -> None:
    """The relay answers at the address, the peer behind it is meant."""
    relay = parse_peer_address(f"/ip4/8.8.8.8/tcp/1/p2p/{OTHER}")
    behind = parse_peer_address(f"{relay_address(relay)}/p2p/{PEER}")

    assert (True, OTHER, PEER) == (behind.is_relayed, behind.answering_peer_id, behind.peer_id)
    assert (False, OTHER) == (relay.is_relayed, relay.answering_peer_id)


def test_what_nobody_can_dial_is_left_out() -> None:
    """Link-local, unspecified and malformed ones."""
    link_local = f"/ip6/fe80::1/tcp/1/p2p/{PEER}"
    assert [GOOD] == dialable([link_local, GOOD, "junk", f"/ip4/0.0.0.0/tcp/1/p2p/{PEER}"])
