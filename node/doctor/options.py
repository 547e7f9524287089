"""What the user would give to `join`, with a finding for each part of it that is malformed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.address import PeerAddress, check_announced, parse_initial_peers
from bt_p2p.protocol.assignment import parse_span
from bt_p2p.swarm.listen import listen_address
from node.doctor.finding import OPTIONS, Finding, problem_of
from node.membership import read_token
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
    block: int | None
    span: range | None
    data: Path | None
    host: str
    port: int
    announce: tuple[str, ...]
    device: str
    run_token: str | None


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


def well_formed_span(text: str | None) -> tuple[range | None, list[Finding]]:
    """The blocks to serve as they were typed, or a problem; None if they were left open."""
    findings = [] if text is None else _problem("span-malformed", partial(parse_span, text))
    return (None if text is None or findings else parse_span(text)), findings


def readable_token(run_token: str | None, path: Path | None) -> tuple[str | None, list[Finding]]:
    """The run token as text or out of its file, or a problem; None if there is none."""
    findings = _problem("run-token-unreadable", partial(read_token, run_token, path))
    return (None if findings else read_token(run_token, path)), findings


def _problem(code: str, check: Callable[[], object]) -> list[Finding]:
    try:
        check()
    except ConfigError as exc:
        return [problem_of(OPTIONS, code, exc)]
    return []
