"""What can be told of the network: the peers named, who can dial us, clocks, and the link."""

from __future__ import annotations

from collections.abc import Sequence

from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.clock_vote import clock_problem
from bt_p2p.protocol.identity import short_peer_id
from bt_p2p.protocol.limits import MAX_CLOCK_LEAD_S, MAX_CLOCK_SKEW_S
from bt_p2p.swarm.dial_back import Reachability, fix_of
from bt_p2p.swarm.link import Echo, link_bytes_per_s
from bt_p2p.swarm.reach import Reach
from node.doctor.finding import Finding

SLOW_LINK_BYTES_PER_S = 500_000
_ASK = "ask whoever runs that peer for its current address; it may have stopped or moved"
_MOVED = ("peer-unreachable", _ASK)
_PEER = {
    "timed out": (
        "peer-timed-out",
        "check that this machine is online, and the other side's firewall and port forwarding",
    ),
    "refused": ("peer-refused", _ASK),
    "no such host": ("peer-unknown-host", "check the name, and this machine's DNS"),
    "not resolved": ("peer-unknown-host", "check this machine's DNS"),
    "another peer answers": ("peer-is-another", _ASK),
    "accepts connections, but": ("peer-is-no-peer", _ASK),
    "no route": (
        "peer-no-route",
        "use an address of a network that this machine has (IPv4 or IPv6)",
    ),
}
"""Code and fix by what the dial found; the tests plant each."""


def nobody_to_ask() -> Finding:
    """No address was given and none is known."""
    return Finding(
        check="peers",
        severity="note",
        code="no-peer-named",
        text="no peer is named and none is known, so the network is not tested; joined like this, "
        "the node is the first of a swarm",
        fix="name a peer of a swarm that exists: --initial-peers MULTIADDR",
    )


def peers(reaches: Sequence[Reach]) -> list[Finding]:
    """One finding for each address; those that fail are a problem only if none answers."""
    has_answer = any(not reach.problem for reach in reaches)
    return [_peer(reach, has_answer=has_answer) for reach in reaches]


def _peer(reach: Reach, *, has_answer: bool) -> Finding:
    where = reach.address.text
    if not reach.problem and reach.address.transport != "tcp":
        text = f"{where} is not tried: it is no TCP address"
        return Finding(check="peers", severity="note", code="peer-not-tried", text=text)
    if not reach.problem:
        return Finding(check="peers", severity="ok", text=f"{where} answers")
    code, fix = next((words for part, words in _PEER.items() if part in reach.problem), _MOVED)
    return Finding(
        check="peers",
        severity="warning" if has_answer else "problem",
        code=code,
        text=f"{where}: {reach.problem}",
        fix="leave it away" if has_answer else fix,
    )


def swarm_failed(reason: str) -> Finding:
    """The peers answer, yet no swarm can be entered."""
    return Finding(
        check="swarm",
        severity="problem",
        code="swarm-silent",
        text=reason,
        fix="try again with --debug for the reason",
    )


def announced(addresses: Sequence[PeerAddress]) -> Finding:
    """What others would be told."""
    if not addresses:
        return Finding(
            check="addresses",
            severity="warning",
            code="no-address",
            text="this machine has no address to announce",
            fix="name one with --announce /ip4/PUBLIC_ADDRESS/tcp/PORT",
        )
    best = addresses[0]
    rest = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
    remark = f" ({best.remark})" if best.remark else ""
    own = best.text.rpartition("/p2p/")[0]
    return Finding(
        check="addresses",
        severity="note" if best.remark else "ok",
        code="address-not-public" if best.remark else "",
        text=f"announces {own}{remark}{rest}",
        fix="for peers elsewhere: --announce /ip4/PUBLIC_ADDRESS/tcp/PORT" if best.remark else "",
    )


def reachability(found: Reachability, *, port: int) -> Finding:
    """Whether others can dial this machine."""
    asked = f"{found.num_helpers} peer{'' if found.num_helpers == 1 else 's'} asked"
    match found.verdict:
        case "yes":
            return Finding(
                check="reachability",
                severity="ok",
                text=f"reachable: yes, at {', '.join(found.works)} ({asked})",
            )
        case "unknown":
            return Finding(
                check="reachability",
                severity="note",
                code="reachability-unknown",
                text=f"reachable: nobody could tell ({asked})",
            )
        case "elsewhere":
            return Finding(
                check="reachability",
                severity="warning",
                code="reachable-elsewhere",
                text=f"reachable: only at {', '.join(found.works)}, which is not announced ({asked})",
                fix=fix_of(found, port),
            )
        case "no":
            return Finding(
                check="reachability",
                severity="warning",
                code="not-reachable",
                text=f"reachable: no ({'; '.join(found.reasons)}); the node takes part through a "
                f"relay, if there is one",
                fix=fix_of(found, port),
            )


def clock(leads_s: Sequence[float]) -> Finding:
    """Our clock against those of the peers asked."""
    if not leads_s:
        text = "no peer could tell the time"
        return Finding(check="clock", severity="note", code="clock-unknown", text=text)
    problem = clock_problem(leads_s)
    if not problem:
        plural = "" if len(leads_s) == 1 else "s"
        text = f"agrees with {len(leads_s)} peer{plural} to {MAX_CLOCK_LEAD_S:g} s"
        return Finding(check="clock", severity="ok", text=text)
    text, _, _ = problem.partition("; ")
    return Finding(
        check="clock",
        severity="problem" if min(map(abs, leads_s)) > MAX_CLOCK_SKEW_S else "warning",
        code="clock-wrong",
        text=f"{text}; leases tolerate {MAX_CLOCK_SKEW_S:g} s, rounds less",
        fix="turn time synchronisation on: timedatectl set-ntp true",
    )


def link(peer_id: str, small: Echo, large: Echo) -> Finding:
    """Latency and speed to one peer of the swarm."""
    speed = link_bytes_per_s(small, large)
    text = (
        f"{speed / 1e6:.1f} MB/s each way and {small.round_trip_s * 1e3:.0f} ms round trip to "
        f"{short_peer_id(peer_id)}"
    )
    if speed >= SLOW_LINK_BYTES_PER_S:
        return Finding(check="link", severity="ok", text=text)
    return Finding(
        check="link",
        severity="warning",
        code="link-slow",
        text=f"{text}: slow for averaging large blocks",
        fix="use a faster network, or join a run with smaller blocks or float16 compression",
    )
