"""What the user would give to `join`, with a finding for each part of it that is malformed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.address import PeerAddress, check_announced, parse_initial_peers
from bt_p2p.swarm.listen import listen_address
from node.doctor.finding import OPTIONS, Finding, problem_of
from node.state_dir import StateDir

_SEPARATORS = re.compile(r"[\s,;]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorOptions:
    """What can be looked at; malformed parts are left out."""

    initial_peers: tuple[PeerAddress, ...]
    state_dir: StateDir
    identity_path: Path
    manifest_path: Path | None
    run: str | None
    host: str
    port: int
    announce: tuple[str, ...]
    device: str


def well_formed(
    initial_peers: Sequence[str], announce: Sequence[str], host: str
) -> tuple[tuple[PeerAddress, ...], tuple[str, ...], list[Finding]]:
    """The addresses that are well-formed, and a problem for each that is not, and for the host."""
    findings: list[Finding] = []
    peers: list[PeerAddress] = []
    for text in initial_peers:
        for item in list(filter(None, _SEPARATORS.split(text))) or [text]:
            problem = _problem("address-malformed", partial(parse_initial_peers, [item]))
            findings += problem
            peers += [] if problem else parse_initial_peers([item])
    announced = []
    for text in announce:
        problem = _problem("announce-useless", partial(check_announced, text))
        findings += problem
        announced += [] if problem else [text]
    findings += _problem("host-malformed", partial(listen_address, host, 0))
    return tuple(dict.fromkeys(peers)), tuple(announced), findings


def _problem(code: str, check: Callable[[], object]) -> list[Finding]:
    try:
        check()
    except ConfigError as exc:
        return [problem_of(OPTIONS, code, exc)]
    return []
