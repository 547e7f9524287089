"""Times -> JSON and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ConfigDict

from benchmarks.chain.config import Link
from benchmarks.chaos.report import make_set_up
from benchmarks.quality.training import write_atomically
from benchmarks.replicas.report import SetUp, set_up_words, table

__all__ = ["LinkTimes", "NewcomerTimes", "make_set_up", "render", "write_report"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class NewcomerTimes(_Part):
    """One newcomer; seconds since its program was started."""

    synced_s: float
    """It has the weights, and begins to train."""
    first_average_s: float
    """It has adopted an average that it contributed to."""
    download_s: float
    """From the first chunk asked for to the last one."""
    size_bytes: int
    num_donors: int
    """Who gave chunks."""
    rounds_alone: int
    """Rounds before that average in which nobody was found."""
    load: float
    """Programs that wanted a core of the machine, mean of the last minute."""


class LinkTimes(_Part):
    """Newcomers over one link."""

    link: Link
    newcomers: tuple[NewcomerTimes, ...]
    num_bypasses: int
    """Connections seen between nodes that did not go through the relays."""


class NewcomerReport(_Part):
    """Everything."""

    set_up: SetUp
    num_donors: int
    round_s: float
    links: tuple[LinkTimes, ...]


def write_report(
    out: Path, set_up: SetUp, links: Sequence[LinkTimes], *, num_donors: int, round_s: float
) -> None:
    """Write newcomer.json and newcomer.md."""
    report = NewcomerReport(
        set_up=set_up, num_donors=num_donors, round_s=round_s, links=tuple(links)
    )
    write_atomically(out / "newcomer.json", report.model_dump_json(indent=2) + "\n")
    write_atomically(out / "newcomer.md", render(report))


def render(report: NewcomerReport) -> str:
    """The whole of newcomer.md."""
    header = ["Link of each node", "newcomers", "weights there, s", "of that download, s"]
    header += ["donors that gave", "first average, s", "shortest", "longest", "load"]
    rows = []
    for each in report.links:
        first = [one.first_average_s for one in each.newcomers]
        rows.append(
            [
                "loopback" if each.link.is_loopback else each.link.title,
                str(len(first)),
                f"{median(one.synced_s for one in each.newcomers):.1f}",
                f"{median(one.download_s for one in each.newcomers):.2f}",
                f"{median(one.num_donors for one in each.newcomers):g}",
                f"**{median(first):.1f}**",
                f"{min(first):.1f}",
                f"{max(first):.1f}",
                f"{median(one.load for one in each.newcomers):.0f}",
            ]
        )
    size_bytes = report.links[0].newcomers[0].size_bytes
    text = (
        f"# From `join` to the first average\n\n"
        f"{report.num_donors} replicas of one block of the default size "
        f"({size_bytes / 1e6:.1f} MB of weights) train in rounds of {report.round_s:g} s. Newcomers "
        f"with empty folders join one after another and leave again. Seconds count from the start of "
        f"the program, so they hold the imports of torch and hivemind, the way into the swarm, two "
        f"seconds of settling, and the wait for the end of a round of which the newcomer has trained "
        f"at least half. Medians. Each node is behind its own link; all "
        f"run on the machine below. Load: programs that wanted one of its cores at the end, others' "
        f"too.\n\n"
        f"{table(header, rows)}\n\n"
    )
    bypasses = sum(each.num_bypasses for each in report.links)
    if bypasses:
        text += f"{bypasses} connections did not go through the links.\n\n"
    return text + set_up_words(report.set_up, "newcomer.json") + "\n"
