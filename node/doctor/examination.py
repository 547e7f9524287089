"""The examination as a whole: which checks run, in which order, and with what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError, PeerError, ProtocolError, SwarmError
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.address import PeerAddress, parse_peer_addresses
from bt_p2p.protocol.assignment import choose_block
from bt_p2p.protocol.limits import MAX_ECHO_SIZE_BYTES
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview, make_overview
from bt_p2p.swarm.checkup import echo
from bt_p2p.swarm.directory import HivemindDirectory
from bt_p2p.swarm.link import Echo, link_bytes_per_s
from bt_p2p.swarm.listen import listen_address
from bt_p2p.swarm.neighbour_help import MAX_HELPERS, helpers
from bt_p2p.swarm.neighbours import clock_leads_s
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer
from bt_p2p.swarm.reach import probe
from node.doctor import machine, network
from node.doctor.finding import Finding
from node.doctor.plan import Plan, make_plan, plan_finding
from node.manifests import choose_run, read_manifest
from node.reachability import ASK_TIMEOUT_S, ask
from node.state_dir import StateDir

_WARM_UP_SIZE_BYTES = 4096
_LINK_TIMEOUT_S = 60.0
"""Some helpers may be silent, and some links slow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorOptions:
    """What the user would give to `join`."""

    initial_peers: tuple[PeerAddress, ...]
    state_dir: StateDir
    manifest_path: Path | None
    run: str | None
    host: str
    port: int
    announce: tuple[str, ...]
    device: str


@dataclass(kw_only=True, slots=True)
class _Seen:
    """What the swarm has told."""

    manifest: RunManifest | None = None
    overview: SwarmOverview | None = None
    peer_id: str = ""
    link_bytes_per_s: float | None = None


def examine(
    options: DoctorOptions, show: Callable[[str], None]
) -> tuple[list[Finding], Plan | None]:
    """Run all checks; those of the network with a throw-away peer that stores nothing.

    Args:
        options: as for joining.
        show: told what is being looked at.

    Raises:
        ConfigError: an option is malformed.
    """
    listen = listen_address(options.host, options.port)
    seen = _Seen()
    if options.manifest_path is not None:
        seen.manifest = read_manifest(options.manifest_path, run=options.run)
    show("looking at this machine")
    found = [
        machine.state_folder(options.state_dir),
        machine.files(*machine.open_file_limits()),
        machine.port(options.host, options.port, options.state_dir),
        machine.device(options.device),
    ]
    port_is_free = found[2].severity == "ok"
    show("asking the swarm")
    found += _look_at_network(options, listen if port_is_free else None, seen)
    plan = None
    manifest = seen.manifest or (None if _known(options) else RunManifest())
    if manifest is not None:
        sizes = block_sizes(
            manifest.model, manifest.objective, batch_size=manifest.optimizer.batch_size
        )
        found.append(machine.memory(sizes, batch_size=manifest.optimizer.batch_size))
        if found[0].severity == "ok":
            found.append(machine.disk(options.state_dir.run_folder(manifest.run_id), sizes))
        block, num_replicas = _place(seen)
        plan = make_plan(
            manifest,
            sizes,
            block=block,
            num_replicas=num_replicas,
            link_bytes_per_s=seen.link_bytes_per_s,
        )
        found.append(plan_finding(plan))
    return found, plan


def _known(options: DoctorOptions) -> tuple[PeerAddress, ...]:
    return options.initial_peers or tuple(options.state_dir.remembered_peers())


def _look_at_network(options: DoctorOptions, listen: str | None, seen: _Seen) -> list[Finding]:
    known = _known(options)
    if not known:
        return [network.nobody_to_ask()]
    reaches = probe(known, is_thorough=True)
    found = network.peers(reaches)
    alive = tuple(reach.address for reach in reaches if not reach.problem)
    if not alive:
        return found
    try:
        peer = start_peer(
            PeerOptions(
                initial_peers=alive,
                listen=() if listen is None else (listen,),
                announce=options.announce,
                is_client=True,
            )
        )
    except SwarmError as exc:
        return [*found, network.swarm_failed(str(exc))]
    with contextlib.ExitStack() as stack:
        stack.callback(peer.stop)
        return found + _look_from_inside(peer, options, seen, is_listening=listen is not None)


def _look_from_inside(
    peer: SwarmPeer, options: DoctorOptions, seen: _Seen, *, is_listening: bool
) -> list[Finding]:
    found: list[Finding] = []
    if is_listening:
        found.append(network.announced(parse_peer_addresses(peer.addresses())))
        try:
            found.append(network.reachability(ask(peer), port=options.port))
        except TimeoutError:
            found.append(network.swarm_failed(f"nobody dialled back within {ASK_TIMEOUT_S:g} s"))
    timed = peer.loop.run(_time_link(peer), timeout_s=_LINK_TIMEOUT_S)
    if timed is not None:
        found.append(network.link(*timed))
        seen.link_bytes_per_s = link_bytes_per_s(*timed[1:])
    seen.peer_id = peer.peer_id
    directory = HivemindDirectory(peer.dht)
    try:
        found.append(network.clock(clock_leads_s(peer)))
        if seen.manifest is None:
            seen.manifest = choose_run(directory.runs(), options.run)
        leases = directory.read(seen.manifest)
        seen.overview = make_overview(seen.manifest, leases, now_s=SystemClock().now_s())
    except (ConfigError, SwarmError) as exc:
        text, _, fix = str(exc).rpartition("; ")
        found.append(
            Finding(check="run", severity="problem", text=text or fix, fix=fix if text else "")
        )
    return found


async def _time_link(peer: SwarmPeer) -> tuple[str, Echo, Echo] | None:
    """A short and a long transfer with the first neighbour that helps; None if nobody does."""
    clock = SystemClock()
    for peer_id in (await helpers(peer.p2p))[:MAX_HELPERS]:
        try:
            await echo(peer.p2p, peer_id, size_bytes=_WARM_UP_SIZE_BYTES, clock=clock)
            small = await echo(peer.p2p, peer_id, size_bytes=0, clock=clock)
            large = await echo(peer.p2p, peer_id, size_bytes=MAX_ECHO_SIZE_BYTES, clock=clock)
        except (PeerError, ProtocolError):
            continue
        return peer_id, small, large
    return None


def _place(seen: _Seen) -> tuple[int | None, int]:
    """The block that a newcomer would take, and how many hold it already."""
    if seen.overview is None:
        return None, 0
    block = choose_block(seen.overview, seen.peer_id)
    return block, len(seen.overview.blocks[block].holders)
