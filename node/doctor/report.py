"""Findings as text for people and as a JSON document for programs."""

from __future__ import annotations

from collections.abc import Sequence

from node.doctor.finding import SEVERITIES, Finding, exit_code, worst
from node.doctor.plan import Plan

_WIDTH = max(map(len, SEVERITIES))


def text_of(findings: Sequence[Finding]) -> str:
    """Numbered lines, each fix below its finding, and a summary."""
    lines: list[str] = []
    for number, finding in enumerate(findings, start=1):
        label = finding.severity.ljust(_WIDTH)
        code = f" [{finding.code}]" if finding.code else ""
        lines.append(f"{number:>2}. {label}  {finding.check}: {finding.text}{code}")
        if finding.fix:
            lines.append(f"    {'':<{_WIDTH}}  fix: {finding.fix}")
    counts = {each: sum(f.severity == each for f in findings) for each in SEVERITIES[1:]}
    named = [f"{number} {name}{'s' * (number > 1)}" for name, number in counts.items() if number]
    lines.append(f"{', '.join(named) or 'nothing to complain about'}: {_VERDICTS[worst(findings)]}")
    return "".join(f"{line}\n" for line in lines)


def document_of(findings: Sequence[Finding], plan: Plan | None) -> dict[str, object]:
    """docs/reference/doctor-json.md describes it."""
    return {
        "ok": exit_code(findings) == 0,
        "worst": worst(findings),
        "findings": [
            {
                "number": number,
                "check": finding.check,
                "severity": finding.severity,
                "code": finding.code or None,
                "text": finding.text,
                "fix": finding.fix or None,
            }
            for number, finding in enumerate(findings, start=1)
        ],
        "plan": None
        if plan is None
        else {
            "run_id": plan.run_id,
            "block": plan.block,
            "num_blocks": plan.num_blocks,
            "replicas": plan.num_replicas,
            "batch_size": plan.batch_size,
            "round_s": plan.round_s,
            "sent_bytes_per_round": plan.sent_bytes_per_round,
            "averaging_s": plan.averaging_s,
            "averaging_share": plan.averaging_share,
        },
    }


_VERDICTS = {
    "ok": "this machine can join",
    "note": "this machine can join",
    "warning": "this machine can join, with limits",
    "problem": "join would fail; fix the problems first",
}
