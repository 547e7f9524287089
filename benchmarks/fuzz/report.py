"""What was found, as JSON and as Markdown. Pure."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from benchmarks.fuzz.decoder import Decoder
from benchmarks.fuzz.watch import Outcome
from benchmarks.quality.machine import Code, Machine
from node.tui.format import format_bytes, plural

_MAX_SHOWN_BYTES = 96


class Finding(BaseModel):
    """Something that no input may cause."""

    model_config = ConfigDict(frozen=True)

    error: str
    place: str
    input_hex: str


class Row(BaseModel):
    """One decoder."""

    model_config = ConfigDict(frozen=True)

    decoder: str
    sender: str
    num_inputs: int
    num_accepted: int
    duration_s: float
    growth_bytes: int
    coverage: int | None
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, decoder: Decoder, outcome: Outcome) -> Self:
        """What became of a decoder."""
        return cls(
            decoder=decoder.name,
            sender=decoder.sender,
            num_inputs=outcome.num_inputs,
            num_accepted=outcome.num_accepted,
            duration_s=outcome.duration_s,
            growth_bytes=outcome.growth_bytes,
            coverage=outcome.coverage,
            findings=tuple(
                Finding(error=fault.error, place=fault.place, input_hex=fault.input_hex)
                for fault in outcome.faults
            ),
        )

    def line(self) -> str:
        """One line for the terminal."""
        return (
            f"{self.decoder}: {self.num_inputs:,} inputs, {self.num_accepted:,} accepted, "
            f"{len(self.findings)} findings, {self.duration_s:.0f} s"
        )


class Results(BaseModel):
    """The whole of fuzz.json."""

    model_config = ConfigDict(frozen=True)

    engine: str
    seed: int
    input_timeout_s: float
    max_growth_bytes: int
    rows: tuple[Row, ...]
    machine: Machine
    code: Code
    date: str
    command: str

    @property
    def num_inputs(self) -> int:
        """Of all decoders."""
        return sum(row.num_inputs for row in self.rows)

    @property
    def num_faults(self) -> int:
        """Findings of all decoders."""
        return sum(len(row.findings) for row in self.rows)


def render_report(results: Results) -> str:
    """The whole of fuzz.md."""
    machine, code = results.machine, results.code
    parts = [
        "# Malformed input",
        f"**{results.num_inputs:,} inputs to {len(results.rows)} decoders: "
        f"{plural(results.num_faults, 'finding')}.** Each input is a valid message that was changed: bits, "
        f"bytes, sizes, types, nesting, repeats, splices. A decoder may accept it or refuse it with "
        f"its documented error. Anything else is a finding: another exception, the end of its process, "
        f"over {results.input_timeout_s:g} s of CPU time for one input, or over "
        f"{format_bytes(results.max_growth_bytes)} of memory.",
        "| Decoder | Bytes are chosen by | Inputs | Accepted | Findings | Memory grew by "
        "| Branches |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
        + "\n".join(_line(row) for row in results.rows),
        *(_findings(row) for row in results.rows if row.findings),
        "Branches are those of our own packages that atheris saw; decoders that stand for hivemind's "
        "own code have few.",
        "## Set-up",
        "\n".join(
            f"- {line}"
            for line in (
                f"`{results.command}`",
                f"engine: {results.engine}; seed {results.seed}",
                f"{machine.cpu}, {machine.num_cores} cores, {format_bytes(machine.ram_size_bytes)} "
                f"of memory; Python {machine.python}, {machine.system}",
                f"commit {code.commit[:12] or 'unknown'}"
                f"{' with local changes' if code.is_dirty else ''}, {results.date}",
                "all figures: `fuzz.json`",
            )
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _line(row: Row) -> str:
    cells = [
        row.decoder,
        row.sender,
        f"{row.num_inputs:,}",
        f"{row.num_accepted / max(1, row.num_inputs):.1%}",
        str(len(row.findings)),
        format_bytes(max(0, row.growth_bytes)),
        "" if row.coverage is None else str(row.coverage),
    ]
    return f"| {' | '.join(cells)} |"


def _findings(row: Row) -> str:
    lines = [
        f"- {finding.error} at {finding.place}, input `{finding.input_hex[: 2 * _MAX_SHOWN_BYTES]}`"
        for finding in row.findings
    ]
    return "\n".join([f"## {row.decoder}", "", *lines])
