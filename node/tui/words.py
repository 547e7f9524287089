"""Words: facts about the swarm and this node as sentences, the same wherever they are shown."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Container, Sequence

from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.lease import Lease
from bt_p2p.protocol.limits import LEASE_RENEW_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from node.reasons.code import ReasonCode, Severity
from node.reasons.judge import reasons_of
from node.reasons.reason import Reason
from node.receipts import Receipt
from node.snapshot import NodeSnapshot
from node.tui.format import (
    format_age,
    format_bytes,
    format_count,
    format_duration,
    format_peer,
    format_rate,
    format_share,
    plain,
    plural,
)

STALE_AGE_S = 2.5 * LEASE_RENEW_S
"""A lease this old has missed two renewals: its peer is probably gone."""

_GRAVE = frozenset({Severity.ERROR, Severity.WARNING})
_MAX_LISTED = 5
_TREND_ROUNDS = 10
"""Rounds over which the change of the loss is told."""


def swarm_words(overview: SwarmOverview) -> str:
    """Peers, coverage and speed: "4 peers, 3/4 blocks training, 12.3 kB/s"."""
    num_blocks = len(overview.blocks)
    speed = sum(block.bytes_per_s for block in overview.blocks)
    return (
        f"{plural(overview.num_peers, 'peer')}, "
        f"{num_blocks - len(overview.uncovered)}/{num_blocks} blocks training, "
        f"{format_rate(speed)}"
    )


def model_words(manifest: RunManifest) -> str:
    """The size of the model in one line."""
    model = manifest.model
    sizes = block_sizes(model, manifest.objective, batch_size=manifest.optimizer.batch_size)
    return (
        f"{format_count(model.num_blocks * sizes.num_parameters)} parameters in "
        f"{plural(model.num_blocks, 'block')} x {plural(model.layers_per_block, 'layer')}, "
        f"width {model.d_model}, context {format_count(model.context)} bytes"
    )


def uncovered_words(
    overview: SwarmOverview, initial_peers: Sequence[str] = (), *, max_width: int | None = None
) -> str:
    """Which blocks nobody holds, the command that helps, and what goes on meanwhile.

    Args:
        overview: with at least one uncovered block.
        initial_peers: addresses for the command, which then names the run as well.
        max_width: both are left out if the text would be longer.
    """
    missing = overview.uncovered
    nobody = len(missing) == len(overview.blocks)
    listed = _listed([str(index) for index in missing])
    if nobody:
        what, flags, end = "no block has a holder", "", "starts training"
    elif len(missing) == 1:
        what, flags, end = f"block {listed} has no holder", f" --block {missing[0]}", "serves it"
    else:
        what = f"blocks {listed} have no holder"
        flags, end = f" --block {missing[0]}", f"serves block {missing[0]}"
    rest = "" if nobody else "; covered blocks go on training"

    def sentence(peers: str, run: str = "") -> str:
        return f"{what}: bt-node join{run}{flags} --initial-peers {peers} {end}{rest}"

    if initial_peers:
        peers = " ".join(plain(peer) for peer in initial_peers)
        full = sentence(peers, run=f" --run {overview.manifest.run_id}")
        if max_width is None or len(full) <= max_width:
            return full
    return sentence("...")


def need_words(overview: SwarmOverview, *, mine: str | None, max_width: int | None = None) -> str:
    """What more volunteers would do for the swarm; empty where blocks are without any holder.

    Args:
        overview: the swarm.
        mine: peer id of the node on this machine; without one the command to join is named.
        max_width: the command is left out if the text would be longer.
    """
    if overview.uncovered:
        return ""
    fewest = min(len(block.holders) for block in overview.blocks)
    thin = [block.index for block in overview.blocks if len(block.holders) == fewest]
    what = "block" if len(thin) == 1 else "blocks"
    listed = _listed([str(index) for index in thin])
    if fewest == 1:
        text = f"needs a second holder of {what} {listed}"
    else:
        text = f"every block has at least {format_count(fewest)} holders"
    full = text
    if mine is None and fewest == 1:
        full = f"{text}: bt-node join --block {thin[0]} --initial-peers ..."
    return full if max_width is None or len(full) <= max_width else text


def share_words(snapshot: NodeSnapshot, overview: SwarmOverview | None) -> str:
    """What this node is to the swarm; empty while it holds no block of it."""
    if overview is None or overview.manifest.run_id != snapshot.run_id:
        return ""
    block = next((block for block in overview.blocks if block.index == snapshot.block), None)
    mine = [] if block is None else [x for x in block.holders if x.peer_id == snapshot.peer_id]
    if block is None or not mine:
        return ""
    total = sum(every.bytes_per_s for every in overview.blocks)
    speed = f"{format_share(mine[0].bytes_per_s / total)} of the swarm's speed, " if total else ""
    others = len(block.holders) - 1
    if not others:
        return f"{speed}nobody else holds block {block.index}"
    return f"{speed}one of {format_count(others + 1)} holders of block {block.index}"


def joining_words(overview: SwarmOverview, *, ascii_only: bool = False) -> str:
    """Who is choosing a block; empty if nobody is."""
    if not overview.joining:
        return ""
    ids = [format_peer(lease.peer_id, ascii_only=ascii_only) for lease in overview.joining]
    return f"joining: {_listed(ids, last_word=', ')}"


def invalid_words(overview: SwarmOverview) -> str:
    """How many records were refused; empty if none were."""
    num_invalid = overview.num_invalid_records
    return f"{plural(num_invalid, 'invalid record')} ignored" if num_invalid else ""


def warning_words(
    snapshot: NodeSnapshot, *, now_s: float | None = None, severities: Container[Severity] = _GRAVE
) -> list[str]:
    """What the owner of a node should look at and do, each with its code, the gravest first.

    Args:
        snapshot: of the node.
        now_s: DHT time; without it, as the node's last report has it.
        severities: which ones.
    """
    return [
        _reason_words(reason)
        for reason in reasons_of(snapshot, now_s=now_s)
        if reason.severity in severities
    ]


def why_words(snapshot: NodeSnapshot, *, now_s: float) -> list[str]:
    """Why a node idles, waits or is alone though nothing is wrong, each with its code.

    What other rows about a node say already is left out.
    """
    told = {ReasonCode.RELAYED_ONLY} | (
        {ReasonCode.WAITING_FOR_WEIGHTS} if snapshot.sync else set()
    )
    return [
        _reason_words(reason)
        for reason in reasons_of(snapshot, now_s=now_s)
        if not reason.is_warning and reason.code not in told
    ]


def _reason_words(reason: Reason) -> str:
    return f"{reason.line}; next: {reason.next_action}"


def ended_words(snapshot: NodeSnapshot) -> str:
    """That the node on this machine is gone while somebody watched it."""
    return (
        f"the node on this machine (process {snapshot.pid}) has ended; the reason is at the end of "
        f"its log, {plain(snapshot.state_dir)}/node.log; start it again with: bt-node join"
    )


def address_words(address: str, *, full: bool = False, ascii_only: bool = False) -> str:
    """An address, its peer id shortened unless `full`, and whether other machines can use it."""
    shown = plain(address, ascii_only=ascii_only)
    host, _, peer_id = shown.partition("/p2p/")
    if peer_id and not full:
        shown = f"{host}/p2p/{format_peer(peer_id, ascii_only=ascii_only)}"
    return f"{shown}  this machine only" if is_loopback(address) else shown


def is_loopback(address: str) -> bool:
    """Whether a multiaddr only leads to the machine it came from."""
    parts = address.split("/")
    host = parts[2] if len(parts) > 2 else ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_stale(lease: Lease, *, now_s: float) -> bool:
    """Whether a lease should have been renewed by now."""
    return lease.age_s(now_s) > STALE_AGE_S


def last_words(snapshot: NodeSnapshot, *, now_s: float) -> str:
    """How the last round ended, and when this node last averaged with anybody."""
    age = format_age(snapshot.last_average_at_s, now_s=now_s)
    outcome = snapshot.last_outcome
    if not outcome:
        return "no round finished yet"
    if snapshot.last_average_at_s is None:
        return f"{outcome}; never averaged yet"
    if outcome.startswith("averaged"):
        return f"{outcome}, {age}"
    return f"{outcome}; last average {age}"


def contribution_words(receipt: Receipt) -> str:
    """What was given to the run, over all starts."""
    return (
        f"{plural(receipt.rounds, 'round')} in {format_duration(receipt.trained_s)} over "
        f"{plural(receipt.num_starts, 'start')}, {format_bytes(receipt.bytes_sent)} up, "
        f"{format_bytes(receipt.bytes_received)} down"
    )


def block_words(snapshot: NodeSnapshot) -> str:
    """Which block this node has."""
    return "no block yet" if snapshot.block is None else f"block {snapshot.block}"


def round_words(snapshot: NodeSnapshot, *, now_s: float) -> str:
    """The round under way and the time to its end, or the rounds done if none is."""
    ends_at_s = snapshot.round_ends_at_s
    if ends_at_s is None or not math.isfinite(ends_at_s) or snapshot.state == "paused":
        return f"{plural(snapshot.round_index, 'round')} done"
    current = snapshot.round_index + 1
    if ends_at_s <= now_s:
        return f"round {current} is ending"
    return f"round {current} ends in {format_duration(ends_at_s - now_s)}"


def loss_change_words(history: Sequence[float]) -> str:
    """Where the loss goes: "0.210 lower than 10 rounds ago"; empty before two finite rounds."""
    if len(history) < 2:
        return ""
    back = min(_TREND_ROUNDS, len(history) - 1)
    change = history[-1] - history[-1 - back]
    if not math.isfinite(change):
        return ""
    direction = "lower" if change < 0 else "higher"
    return f"{abs(change):.3f} {direction} than {plural(back, 'round')} ago"


def _listed(items: Sequence[str], *, last_word: str = " and ") -> str:
    """A few items in words: "1, 2 and 5", "1, 2, 3, 4, 5 and 12 more"."""
    if len(items) > _MAX_LISTED + 1:
        items = [*items[:_MAX_LISTED], f"{format_count(len(items) - _MAX_LISTED)} more"]
    return last_word.join([*filter(None, [", ".join(items[:-1])]), items[-1]])
