"""What can be told of this machine without any network."""

from __future__ import annotations

import dataclasses
import resource
import stat
from pathlib import Path

from bt_p2p.errors import ConfigError
from bt_p2p.model.device import pick_device, require_device
from bt_p2p.model.sizes import BlockSizes
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.swarm.listen import check_port_is_free
from node.doctor.finding import Finding, finding_of, problem_of
from node.resources import (
    MIN_OPEN_FILES,
    check_disk,
    check_memory,
    free_bytes,
    memory_limit_bytes,
    needed_memory_bytes,
)
from node.snapshot import read_snapshot
from node.state_dir import NodeLock, StateDir

_MIB = 2**20
_MUCH = 0.8
"""Of the memory allowed; a node that needs more is in danger when others grow."""


def state_folder(state: StateDir) -> Finding:
    """Whether the state folder can be written."""
    return finding_of(
        "state folder", "state-folder-unwritable", f"{state.path} can be written", state.create
    )


def state_folder_use(state: StateDir) -> Finding:
    """Whether another node runs with the state folder; this node itself may be asked about, too."""
    found: list[ConfigError] = []
    try:
        with NodeLock(state):
            pass
    except ConfigError as exc:
        found.append(exc)
    if not found:
        return Finding(check="state folder", severity="ok", text="no other node runs with it")
    problem = problem_of("state folder", "state-folder-in-use", found[0])
    return dataclasses.replace(problem, severity="warning")


def identity(path: Path) -> Finding:
    """Whether the key file is one, for its owner's eyes only; a missing file is made by `join`."""
    if not path.exists():
        text = f"{path} is made when the node joins"
        return Finding(check="identity", severity="ok", text=text)
    try:
        peer_id = PeerIdentity.load(path).peer_id
    except ConfigError as exc:
        return problem_of("identity", "identity-unusable", exc)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding(
            check="identity",
            severity="warning",
            code="identity-not-private",
            text=f"{path}, the key of peer {peer_id}, has mode {mode:03o}: others may take it",
            fix=f"chmod 600 {path}",
        )
    return Finding(check="identity", severity="ok", text=f"{path} is the key of peer {peer_id}")


def files(soft_limit: int, hard_limit: int) -> Finding:
    """How many files and connections a process may have open."""
    shown = "unlimited" if soft_limit == resource.RLIM_INFINITY else f"{soft_limit:,}"
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= MIN_OPEN_FILES:
        return Finding(check="open files", severity="ok", text=f"{shown} files may be open")
    may_raise = hard_limit == resource.RLIM_INFINITY or hard_limit >= MIN_OPEN_FILES
    command = f"ulimit -n {MIN_OPEN_FILES}"
    return Finding(
        check="open files",
        severity="warning",
        code="few-open-files",
        text=f"only {shown} files may be open; with many peers a node needs {MIN_OPEN_FILES:,}",
        fix=command if may_raise else f"have the administrator raise the limit for: {command}",
    )


def open_file_limits() -> tuple[int, int]:
    """Soft and hard limit of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def port(host: str, number: int, state: StateDir) -> Finding:
    """Whether the port can be listened on; one that this node itself uses is fine."""
    found = finding_of(
        "port",
        "port-not-free",
        f"port {number} is free" if number else "any free port is taken",
        lambda: check_port_is_free(host, number),
    )
    here = read_snapshot(state.path)
    if found.severity == "ok" or here is None:
        return found
    if any(f"/tcp/{number}/" in address for address in here.addresses):
        text = f"port {number} is in use by this node"
        return Finding(check="port", severity="note", code="port-of-this-node", text=text)
    return found


def device(name: str) -> Finding:
    """What the node would compute on, and how well; it computes a little."""
    found: list[str] = []
    finding = finding_of(
        "device", "device-missing", "", lambda: found.append(pick_device(name).reason)
    )
    if not found:
        return finding
    return Finding(check="device", severity="ok", text=f"trains on {found[0]}")


def named_device(name: str) -> Finding:
    """Whether the device is there; computes nothing, so processes may be forked after it."""
    return finding_of("device", "device-missing", f"{name} is there", lambda: require_device(name))


def memory(sizes: BlockSizes, *, batch_size: int, num_copies: int = 0) -> Finding:
    """Whether one block, and copies of others, fit below the memory limit."""
    num_parts: list[int] = []
    found = finding_of(
        "memory",
        "memory-short",
        "",
        lambda: num_parts.append(check_memory(sizes, batch_size=batch_size, num_copies=num_copies)),
    )
    if not num_parts:
        return found
    needed = needed_memory_bytes(sizes, num_copies=num_copies, num_parts=num_parts[0]) // _MIB
    limit = memory_limit_bytes() // _MIB
    text = f"a node needs about {needed} MiB, this machine allows {limit} MiB"
    fix = "close other programs, or join a run with smaller blocks"
    if num_parts[0] > 1:
        text = f"{text}; steps are done in {num_parts[0]} parts, so that it fits"
    elif needed > _MUCH * limit:
        text = f"{text}: little is left for others"
    else:
        return Finding(check="memory", severity="ok", text=text)
    return Finding(check="memory", severity="warning", code="memory-tight", text=text, fix=fix)


def disk(folder: Path, sizes: BlockSizes) -> Finding:
    """Whether the checkpoints fit."""
    free = free_bytes(folder) // _MIB
    return finding_of(
        "disk", "disk-short", f"{free:,} MiB free at {folder}", lambda: check_disk(folder, sizes)
    )
