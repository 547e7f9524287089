"""What a check says: one finding, with a fix if something is to be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from bt_p2p.errors import BtError, ConfigError
from node import exit_codes

Severity = Literal["ok", "note", "warning", "problem"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From harmless to what keeps a node from taking part."""
OPTIONS = "options"
"""The check of what the user typed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one check has found."""

    check: str
    """Name of the check; stays the same between versions."""
    severity: Severity
    text: str
    """One line: what was found, with the value."""
    code: str = ""
    """Name of what was found; stays the same between versions. Empty if all is well."""
    fix: str = ""
    """One line: what to do; empty if there is nothing to do."""


class FindingError(ConfigError):
    """What was found keeps the node from taking part."""

    def __init__(self, message: str, *, code: str) -> None:
        """Keep the name of what was found beside the message."""
        super().__init__(message)
        self.code = code


def finding_of(check: str, code: str, is_fine: str, action: Callable[[], object]) -> Finding:
    """The finding of a check that raises when something is wrong.

    Args:
        check: its name.
        code: what is wrong if it raises.
        is_fine: what to say if it raises nothing.
        action: raises a `BtError` whose text says what is wrong and what to do.
    """
    try:
        action()
    except BtError as exc:
        return problem_of(check, code, exc)
    return Finding(check=check, severity="ok", text=is_fine)


def problem_of(check: str, code: str, error: BtError) -> Finding:
    """An error as a finding: what stands behind its last semicolon is the fix."""
    text, _, advice = str(error).rpartition("; ")
    return Finding(
        check=check,
        severity="problem",
        code=code,
        text=text or advice,
        fix=advice if text else "correct it",
    )


def error_of(findings: Sequence[Finding]) -> FindingError | None:
    """The first problem as the error that ends a command, with the number of others; None if none."""
    problems = [finding for finding in findings if finding.severity == "problem"]
    if not problems:
        return None
    first, others = problems[0], len(problems) - 1
    rest = f" (and {others} more: bt-node doctor --quick lists them)" if others else ""
    return FindingError(f"{first.text}; {first.fix}{rest}", code=first.code)


def worst(findings: Sequence[Finding]) -> Severity:
    """The most severe of them; ok if there are none."""
    found = (finding.severity for finding in findings)
    return max(found, key=SEVERITIES.index, default="ok")


def exit_code(findings: Sequence[Finding]) -> int:
    """Failed with any problem, and a wrong usage if it is with an option; others are no failure."""
    problems = [finding for finding in findings if finding.severity == "problem"]
    if any(finding.check == OPTIONS for finding in problems):
        return exit_codes.USAGE
    return exit_codes.FAILED if problems else exit_codes.OK
