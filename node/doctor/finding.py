"""What a check says: one finding, with a fix if something is to be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from bt_p2p.errors import BtError
from node import exit_codes

Severity = Literal["ok", "note", "warning", "problem"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From harmless to what keeps a node from taking part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one check has found."""

    check: str
    """Name of the check; stays the same between versions."""
    severity: Severity
    text: str
    """One line: what was found, with the value."""
    fix: str = ""
    """One line: what to do; empty if there is nothing to do."""


def finding_of(check: str, is_fine: str, action: Callable[[], object], *, fix: str = "") -> Finding:
    """The finding of a check that raises when something is wrong.

    Args:
        check: its name.
        is_fine: what to say if it raises nothing.
        action: raises a `BtError` whose text says what is wrong and what to do.
        fix: what to do, if the error does not say it.
    """
    try:
        action()
    except BtError as exc:
        text, _, advice = str(exc).rpartition("; ")
        return Finding(
            check=check, severity="problem", text=text or advice, fix=advice if text else fix
        )
    return Finding(check=check, severity="ok", text=is_fine)


def worst(findings: Sequence[Finding]) -> Severity:
    """The most severe of them; ok if there are none."""
    found = (finding.severity for finding in findings)
    return max(found, key=SEVERITIES.index, default="ok")


def exit_code(findings: Sequence[Finding]) -> int:
    """Failed with any problem; warnings and notes are no failure."""
    return exit_codes.FAILED if worst(findings) == "problem" else exit_codes.OK
