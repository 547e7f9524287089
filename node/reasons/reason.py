"""One reason that holds for a node now."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from node.reasons.catalogue import CATALOGUE
from node.reasons.code import ReasonCode, Severity


class Reason(BaseModel):
    """A code and what it was concluded from; what it means is in the catalogue."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: ReasonCode
    evidence: str
    """In plain words, with the values and peers it is about."""
    since_s: float | None = None
    """When it began, in seconds since the epoch; None where nobody took the time."""

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return CATALOGUE[self.code].severity

    @property
    def is_warning(self) -> bool:
        """Whether the owner should look."""
        return self.severity is not Severity.NOTE

    @property
    def next_action(self) -> str:
        """What the owner does about it."""
        return CATALOGUE[self.code].next_action

    @property
    def line(self) -> str:
        """Code and evidence, as shown where there is one line for it."""
        return f"{self.code}: {self.evidence}"

    def document(self) -> dict[str, object]:
        """As in JSON; docs/reference/status-json.md describes it."""
        entry = CATALOGUE[self.code]
        return {
            "code": self.code.value,
            "severity": entry.severity.value,
            "title": entry.title,
            "evidence": self.evidence,
            "meaning": entry.meaning,
            "next": entry.next_action,
            "since_s": self.since_s,
        }
