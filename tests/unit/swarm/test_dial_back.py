"""bt_p2p.swarm.dial_back: nobody is dialled but the asker itself, and the verdict is plain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bt_p2p.errors import RecordRejectedError
from bt_p2p.swarm import dial_back
from bt_p2p.swarm.allowance import Allowance
from bt_p2p.swarm.dial_back import (
    DialBack,
    Dialled,
    Reachability,
    decode_dial_back,
    dial_asker,
    encode_dial_back,
    fix_of,
    judge,
)
from bt_p2p.testing.tiny import tiny_identity

ASKER = tiny_identity(0).peer_id
SEEN_FROM = "/ip4/203.0.113.7/tcp/50123"
OWN = "/ip4/203.0.113.7/tcp/31337"


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """What was dialled; port 1 refuses, all others are answered by the asker."""
    made: list[tuple[str, int, str]] = []

    async def problem_at(hosts: Sequence[str], port: int, *, peer_id: str) -> str:
        made.extend((host, port, peer_id) for host in hosts)
        return "refused" if port == 1 else ""

    monkeypatch.setattr(dial_back, "problem_at", problem_at)
    return made


def ask(*texts: str, seen_from: str = SEEN_FROM) -> DialBack:
    """What a helper answers."""
    return asyncio.run(dial_asker(ASKER, seen_from, texts))


@pytest.mark.parametrize(
    "texts",
    [
        (OWN,),
        (OWN, "/ip4/198.51.100.1/tcp/22"),
        ("/ip4/198.51.100.1/tcp/31337",),
        ("/dns4/victim.example/tcp/31337",),
        ("/ip6/2001:db8::1/tcp/31337", "/ip4/10.0.0.1/tcp/31337"),
    ],
)
def test_only_the_askers_own_host_is_ever_dialled(
    dials: list[tuple[str, int, str]], texts: tuple[str, ...]
) -> None:
    """Whatever it names; and there its authenticated peer id is expected."""
    ask(*texts)
    assert {("203.0.113.7", ASKER)} == {(host, peer_id) for host, _, peer_id in dials}


def test_who_asks_through_a_relay_is_refused(dials: list[tuple[str, int, str]]) -> None:
    """The relay would be dialled in its place."""
    with pytest.raises(RecordRejectedError, match="through a relay"):
        ask(OWN, seen_from=f"{SEEN_FROM}/p2p/{tiny_identity(1).peer_id}/p2p-circuit")
    assert [] == dials


@pytest.mark.parametrize("texts", [(), (OWN,) * 5, ("junk",), ("/ip4/0.0.0.0/tcp/1",)])
def test_too_many_or_malformed_addresses_are_refused(
    dials: list[tuple[str, int, str]], texts: tuple[str, ...]
) -> None:
    """Nothing is dialled then."""
    with pytest.raises(RecordRejectedError):
        ask(*texts)
    assert [] == dials


@pytest.mark.parametrize(
    ("texts", "verdict", "works"),
    [
        ((OWN,), "yes", (OWN,)),
        (("/dns4/me.example/tcp/31337",), "yes", ("/dns4/me.example/tcp/31337",)),
        (("/ip4/192.168.1.5/tcp/31337",), "elsewhere", (OWN,)),
        (("/ip4/203.0.113.7/tcp/1",), "no", ()),
        (("/ip4/192.168.1.5/tcp/1",), "no", ()),
        (("/ip4/203.0.113.7/udp/1/quic-v1",), "unknown", ()),
    ],
)
@pytest.mark.usefixtures("dials")
def test_the_verdict_follows_from_what_was_dialled(
    texts: tuple[str, ...], verdict: str, works: tuple[str, ...]
) -> None:
    """A forwarded port that is not announced is told from a closed one."""
    found = judge([ask(*texts)])
    assert (verdict, works) == (found.verdict, found.works)


def test_one_helper_that_gets_through_is_enough() -> None:
    """Another may sit behind a firewall of its own."""
    answers = [
        DialBack(helper="a", seen_at="h", dialled=(Dialled(address=OWN, problem="timed out"),)),
        DialBack(helper="b", seen_at="h", dialled=(Dialled(address=OWN, problem=""),)),
    ]
    found = judge(answers)
    assert ("yes", (OWN,), 2) == (found.verdict, found.works, found.num_helpers)
    assert "timed out" in found.reasons[0]


def test_nobody_to_ask_is_no_verdict() -> None:
    """The first node of a swarm."""
    assert "unknown" == judge([]).verdict


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        (Reachability(verdict="yes", works=(OWN,)), ()),
        (Reachability(verdict="unknown"), ()),
        (Reachability(verdict="elsewhere", works=(OWN,)), (f"--announce {OWN}",)),
        (
            Reachability(verdict="no", seen_at="203.0.113.7"),
            ("open TCP port 31337", f"--announce {OWN}"),
        ),
    ],
)
def test_who_is_not_reachable_gets_the_options_to_add(
    found: Reachability, parts: tuple[str, ...]
) -> None:
    """To copy; nothing if there is nothing to do."""
    fix = fix_of(found, 31337)
    assert bool(parts) == bool(fix)
    assert all(part in fix for part in parts)


def test_answers_survive_the_wire() -> None:
    """And what is not printable does not reach a terminal."""
    dialled = (Dialled(address=OWN, problem="refused", is_announced=False, is_tried=True),)
    sent = DialBack(helper="h", seen_at="203.0.113.7", dialled=dialled)
    assert sent == decode_dial_back(encode_dial_back(sent), helper="h")

    evil = {"seen_at": "\x1b[2J", "dialled": [{"address": 7, "problem": "a\nb"}, "junk"]}
    found = decode_dial_back(evil, helper="h")
    assert ("[2J", ("", "ab")) == (
        found.seen_at,
        (found.dialled[0].address, found.dialled[0].problem),
    )


def test_a_host_may_ask_in_a_burst_and_then_now_and_then() -> None:
    """One host's greed is not another's loss."""
    allowance = Allowance(burst=2, refill_s=5.0)
    assert [True, True, False] == [allowance.take("a", now_s=0.0) for _ in range(3)]
    assert allowance.take("b", now_s=0.0)
    assert [True, False] == [allowance.take("a", now_s=5.0) for _ in range(2)]
