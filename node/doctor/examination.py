"""The examination as a whole: which checks run, in which order, and with what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
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
from node.doctor.finding import Finding, finding_of, problem_of
from node.doctor.options import DoctorOptions
from node.doctor.plan import Plan, make_plan, plan_finding
from node.doctor.quick import look_at_machine, look_at_run
from node.doctor.wishes import is_there, look_at_wishes
from node.manifests import choose_run, read_manifest
from node.reachability import ASK_TIMEOUT_S, ask

_WARM_UP_SIZE_BYTES = 4096
_LINK_TIMEOUT_S = 60.0
"""Some helpers may be silent, and some links slow."""


@dataclass(kw_only=True, slots=True)
class _Seen:
    """What the swarm has told."""

    manifest: RunManifest | None = None
    overview: SwarmOverview | None = None
    peer_id: str = ""
    link_bytes_per_s: float | None = None


def examine(
    options: DoctorOptions, show: Callable[[str], None], *, is_quick: bool = False
) -> tuple[list[Finding], Plan | None]:
    """Run all checks; those of the network with a throw-away peer that stores nothing.

    Args:
        options: as for joining.
        show: told what is being looked at.
        is_quick: look at this machine only.
    """
    seen = _Seen()
    show("looking at this machine")
    found = look_at_machine(
        options.state_dir,
        identity_path=options.identity_path,
        host=options.host,
        port=options.port,
        device=options.device,
    )
    fine = {finding.check for finding in found if finding.severity != "problem"}
    if "state folder" in fine:
        found.append(machine.state_folder_use(options.state_dir))
    if options.manifest_path is not None:
        found.append(_read_manifest(options.manifest_path, options.run, seen))
    if not is_quick:
        show("asking the swarm")
        listen = listen_address(options.host, options.port) if _is_free(found) else None
        found += _look_at_network(options, listen, seen)
    plan = None
    manifest = seen.manifest
    if manifest is None and options.manifest_path is None and (is_quick or not _known(options)):
        manifest = RunManifest()
    is_known = seen.manifest is not None or not _known(options)
    if manifest is not None and is_known:
        found += look_at_wishes(manifest, options, now_s=SystemClock().now_s())
    elif options.data is not None:
        found.append(is_there(options.data))
    if manifest is not None:
        fits = look_at_run(manifest, options.state_dir, span=options.span)
        found += [each for each in fits if each.check != "disk" or "state folder" in fine]
        block, num_replicas = _place(seen, options)
        plan = make_plan(
            manifest,
            block_sizes(
                manifest.model, manifest.objective, batch_size=manifest.optimizer.batch_size
            ),
            block=block,
            num_replicas=num_replicas,
            link_bytes_per_s=seen.link_bytes_per_s,
        )
        found.append(plan_finding(plan))
    return found, plan


def _is_free(found: Sequence[Finding]) -> bool:
    return any(each.check == "port" and each.severity == "ok" for each in found)


def _read_manifest(path: Path, run: str | None, seen: _Seen) -> Finding:
    def read() -> None:
        seen.manifest = read_manifest(path, run=run)

    return finding_of("run", "manifest-unusable", f"{path} is a manifest", read)


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
        found.append(problem_of("run", "run-unclear", exc))
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


def _place(seen: _Seen, options: DoctorOptions) -> tuple[int | None, int]:
    """The block that the newcomer would take, and how many hold it already."""
    block, overview = options.block, seen.overview
    if overview is None:
        return block, 0
    num_blocks = len(overview.blocks)
    if block is None:
        span = options.span if options.span and options.span.stop <= num_blocks else None
        block = choose_block(overview, seen.peer_id, span=span)
    return block, len(overview.blocks[block].holders) if block < num_blocks else 0
