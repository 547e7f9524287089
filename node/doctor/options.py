"""What the user would give to `join`, with a finding for each part of it that is malformed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.address import PeerAddress, check_announced, parse_initial_peers
from bt_p2p.protocol.assignment import parse_span
from bt_p2p.swarm.listen import listen_address
from node.doctor.finding import OPTIONS, Finding, problem_of
from node.membership import read_token
from node.state_dir import StateDir

T = TypeVar("T")

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
            parsed, problem = _checked("address-malformed", partial(parse_initial_peers, [item]))
            findings += problem
            peers += parsed or ()
    announced = []
    for text in announce:
        _, problem = _checked("announce-useless", partial(check_announced, text))
        findings += problem
        announced += [] if problem else [text]
    findings += _checked("host-malformed", partial(listen_address, host, 0))[1]
    return tuple(dict.fromkeys(peers)), tuple(announced), findings


def well_formed_span(text: str | None) -> tuple[range | None, list[Finding]]:
    """The blocks to serve as they were typed, or a problem; None if they were left open."""
    return (None, []) if text is None else _checked("span-malformed", partial(parse_span, text))


def readable_token(run_token: str | None, path: Path | None) -> tuple[str | None, list[Finding]]:
    """The run token as text or out of its file, or a problem; None if there is none."""
    return _checked("run-token-unreadable", partial(read_token, run_token, path))


def _checked(code: str, check: Callable[[], T]) -> tuple[T | None, list[Finding]]:
    """What a check gives, or the problem that it raises."""
    try:
        return check(), []
    except ConfigError as exc:
        return None, [problem_of(OPTIONS, code, exc)]
