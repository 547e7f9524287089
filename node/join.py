"""`bt-node join`: one volunteer, from arguments to a clean exit.

Order matters: arguments, files and memory are checked before any network; hivemind's processes are
forked before the model and other threads exist; everything stops in reverse.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path

from bt_p2p import __version__
from bt_p2p.clock import Clock, SystemClock
from bt_p2p.errors import BootstrapError, ConfigError
from bt_p2p.protocol.address import PeerAddress
from bt_p2p.protocol.clock_vote import clock_problem
from bt_p2p.protocol.directory import Directory
from bt_p2p.protocol.identity import load_or_create_identity
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.membership import membership_expires_at_s
from bt_p2p.swarm.directory import HivemindDirectory
from bt_p2p.swarm.listen import listen_address
from bt_p2p.swarm.neighbours import clock_leads_s, neighbours
from bt_p2p.swarm.process import PeerOptions, SwarmPeer, start_peer
from bt_p2p.swarm.upload import UploadCap, limit_upload
from node.events.event import Event, Restarted, Started, shortened
from node.events.log import EventLog
from node.join_options import JoinOptions
from node.joined import Joined
from node.manifests import choose_run, read_manifest
from node.manners.manners import Manners
from node.manners.settings import Settings
from node.membership import own_membership
from node.port import free_port, listening_port
from node.preflight import checked_corpus, checked_memory, look_first
from node.reachability import ReachabilityWatch, settle, tell
from node.reasons.code import ReasonCode
from node.reasons.reason import Reason
from node.rebuild import Rebuild, Supervisor
from node.receipts import ReceiptBook
from node.record import NodeRecord
from node.snapshot import NodeSnapshot
from node.standing import Standing
from node.state_dir import NodeLock, StateDir
from node.stop import StopRequest
from node.tui.progress import JoinReporter
from node.volunteer import Volunteer


def run_node(
    options: JoinOptions, reporter: JoinReporter, stop: StopRequest, supervisor: Supervisor
) -> None:
    """Run a volunteer until it is asked to stop, or to be rebuilt.

    Raises:
        ConfigError: something the user gave is wrong.
        BtError: the swarm cannot be joined, or the node cannot go on.
    """
    clock = SystemClock()
    started_at_s = clock.now_s()
    state = options.state_dir
    state.create()
    identity_path = options.identity_path or state.identity_path
    identity, is_new = load_or_create_identity(identity_path)
    if is_new:
        reporter.line(f"new identity {identity.peer_id} in {identity_path}: back this file up")
    with contextlib.ExitStack() as stack:
        stack.enter_context(NodeLock(state))
        receipts = ReceiptBook(state.path)
        if supervisor.last is None:
            receipts.try_join()
        options = _as_before(options, supervisor)
        manifest = _known_manifest(options)
        if supervisor.last is None:
            look_first(options, identity_path, manifest, reporter)
        port = free_port(options.host, options.port, supervisor, stop)
        options = dataclasses.replace(options, port=port)
        num_parts = checked_memory(manifest, options) if manifest else 1
        corpus = checked_corpus(manifest, options) if manifest else None
        if manifest is not None:
            own_membership(manifest, identity.peer_id, options.run_token, now_s=started_at_s)
        upload = _upload_cap(options.settings, clock)
        limit_upload(upload)  # before the processes that share it are forked
        peer, standing = _enter_swarm(
            options, identity_path, identity.peer_id, reporter, is_rebuilt=bool(supervisor.last)
        )
        stack.callback(lambda: peer.stop(at_once=bool(stop.rebuild_reason)))
        directory = HivemindDirectory(peer.dht, identity)
        if manifest is None:
            manifest = _manifest_of_swarm(peer, directory, options)
            reporter.line(f"run {manifest.run_id}: manifest fetched and verified")
        membership = own_membership(
            manifest, identity.peer_id, options.run_token, now_s=started_at_s
        )
        state.remember_manifest(manifest)
        peer.protect_run(manifest)
        port = listening_port(peer, port, options.announce)
        supervisor.kept |= {"run": manifest.run_id, "port": str(port)}
        if corpus is None:
            num_parts = checked_memory(manifest, options)
            corpus = checked_corpus(manifest, options)
        if num_parts > 1:
            reporter.line(f"memory is short for a whole batch: steps are done in {num_parts} parts")
        snapshot = _first_snapshot(peer, manifest, state, started_at_s, supervisor.last, membership)
        snapshot = snapshot.model_copy(
            update={"contribution": receipts.enter(manifest.run_id, at_s=started_at_s)}
        )
        events = EventLog(state.events_path, clock)
        for event in _first_events(snapshot, manifest, supervisor.last, at_s=clock.now_s()):
            events.write(event)
        record = NodeRecord(state.path, snapshot, clock, tell=events.write)
        stack.callback(record.write)
        tell(standing, record)
        is_alone = not neighbours(peer)
        _tell_of_known_peers(record, options, is_alone=is_alone)
        ReachabilityWatch(peer, record, reporter, options.port).start()
        manners = Manners(options.settings, state.path, clock, upload=upload)
        joined = Joined(
            manifest=manifest,
            corpus=corpus,
            peer=peer,
            directory=directory,
            state_dir=state,
            record=record,
            receipts=receipts,
            clock=clock,
            block=options.block,
            span=options.span,
            device=options.device,
            num_parts=num_parts,
            max_rounds=options.max_rounds,
            is_first=supervisor.last is None and is_alone,
            http=options.http,
            supervisor=supervisor,
            manners=manners,
            membership=membership,
            initial_peers=options.initial_peers,
        )
        Volunteer(joined, reporter, stop).run()


def _as_before(options: JoinOptions, supervisor: Supervisor) -> JoinOptions:
    """What a rebuilt node goes on with in place of what the user left open."""
    if supervisor.last is None:
        return options
    before = supervisor.last.kept
    max_rounds = options.max_rounds
    if max_rounds is not None:
        max_rounds = max(0, max_rounds - int(before.get("rounds", "0")))
    return dataclasses.replace(options, run=before.get("run", options.run), max_rounds=max_rounds)


def _known_manifest(options: JoinOptions) -> RunManifest | None:
    """The manifest as far as it is known without the network; None if the swarm has to tell."""
    if options.manifest_path is not None:
        return read_manifest(options.manifest_path, run=options.run)
    remembered = options.state_dir.remembered_manifests()
    fitting = {
        run_id: manifest
        for run_id, manifest in remembered.items()
        if options.run is not None and run_id.startswith(options.run)
    }
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if options.initial_peers or options.state_dir.remembered_peers():
        return None
    if remembered:
        return choose_run(remembered, options.run)
    if options.run is not None:
        raise ConfigError(
            f"run {options.run} is not known here; name a peer of it with --initial-peers, or its "
            f"manifest with --manifest"
        )
    return RunManifest()


def _manifest_of_swarm(peer: SwarmPeer, directory: Directory, options: JoinOptions) -> RunManifest:
    """The run meant among those of the swarm; those joined before if nobody else is there."""
    runs = directory.runs() or options.state_dir.remembered_manifests()
    try:
        return choose_run(runs, options.run)
    except ConfigError as exc:
        problem = clock_problem(clock_leads_s(peer))
        if problem and not runs:  # for us, all that is stored has expired
            raise ConfigError(f"{exc}; {problem}") from exc
        raise


def _upload_cap(settings: Settings, clock: Clock) -> UploadCap | None:
    """One for all processes of the node; None if the user sets no cap."""
    if settings.upload_bytes_per_s is None and settings.upload_bytes_per_day is None:
        return None
    return UploadCap(
        clock,
        bytes_per_s=settings.upload_bytes_per_s,
        max_bytes=settings.upload_bytes_per_day,
    )


def _enter_swarm(
    options: JoinOptions,
    identity_path: Path,
    peer_id: str,
    reporter: JoinReporter,
    *,
    is_rebuilt: bool,
) -> tuple[SwarmPeer, Standing]:
    """Start the peer, through the peers named or those met before, and see who can dial it.

    A rebuilt node asks both, and goes on alone if nobody answers: it is dialling from then on.
    """
    listen = () if options.is_outbound_only else (listen_address(options.host, options.port),)

    def start(peers: tuple[PeerAddress, ...], relays: tuple[PeerAddress, ...] = ()) -> SwarmPeer:
        return start_peer(
            PeerOptions(
                initial_peers=peers,
                identity_path=identity_path,
                listen=listen,
                announce=options.announce,
                is_client=options.is_outbound_only,
                relays=relays,
            )
        )

    remembered = tuple(options.state_dir.remembered_peers())
    named = tuple(each for each in options.initial_peers if each.peer_id != peer_id)
    if len(named) < len(options.initial_peers):
        reporter.line("initial peer skipped: it is this node itself")
    if named and not is_rebuilt:
        peer = start(named)
    else:
        candidates = tuple(dict.fromkeys((*named, *remembered)))
        try:
            peer = start(candidates)
        except BootstrapError as exc:
            reporter.line(f"none of {len(candidates)} peers met before answers: {exc}")
            peer = start(())
    for problem in peer.unreachable:
        reporter.line(f"initial peer skipped: {problem}")
    known = (*named, *remembered)
    try:
        return settle(
            peer,
            lambda relays: start(known, relays),
            known,
            reporter,
            port=options.port,
            is_outbound_only=options.is_outbound_only,
        )
    except BaseException:
        peer.stop()
        raise


def _tell_of_known_peers(record: NodeRecord, options: JoinOptions, *, is_alone: bool) -> None:
    """That a node knows peers and has met none of them; it looks for them from then on."""
    own = record.snapshot.peer_id
    remembered = options.state_dir.remembered_peers()
    known = {each.peer_id for each in (*options.initial_peers, *remembered)} - {own}
    evidence = f"none of {len(known)} known peers answered at the start"
    record.show(ReasonCode.BOOTSTRAP_UNREACHABLE, evidence if is_alone and known else "")


def _first_snapshot(
    peer: SwarmPeer,
    manifest: RunManifest,
    state: StateDir,
    started_at_s: float,
    last: Rebuild | None,
    membership: bytes | None,
) -> NodeSnapshot:
    return NodeSnapshot(
        pid=os.getpid(),
        peer_id=peer.peer_id,
        run_id=manifest.run_id,
        started_at_s=started_at_s,
        state_dir=str(state.path),
        rebuilds=0 if last is None else last.num_total,
        token_expires_at_s=None if membership is None else membership_expires_at_s(membership),
        noted=[]
        if last is None
        else [
            Reason(
                code=ReasonCode.REBUILT,
                evidence=f"{last.num_total} times; last: {last.reason}",
                since_s=started_at_s,
            )
        ],
    )


def _first_events(
    snapshot: NodeSnapshot, manifest: RunManifest, last: Rebuild | None, *, at_s: float
) -> list[Event]:
    events: list[Event] = []
    if last is not None:
        events.append(Restarted(at_s=at_s, reason=shortened(last.reason), num_total=last.num_total))
    events.append(
        Started(
            at_s=at_s,
            run_id=manifest.run_id,
            peer_id=snapshot.peer_id,
            pid=snapshot.pid,
            program=__version__,
            manifest=manifest.model_dump(mode="json"),
            round_s=manifest.rounds.round_s,
        )
    )
    return events
