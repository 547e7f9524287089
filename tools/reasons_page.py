"""The page of reason codes, written from the catalogue.

`make reference` writes it; a test compares.
"""

from __future__ import annotations

from pathlib import Path

from node.reasons.catalogue import CATALOGUE

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "reasons.md"
_INTRODUCTION = """\
# Reason codes

<!-- Written by `make reference` from node/reasons/catalogue.py: change that. -->

Each state in which a node is idle, slow, alone or refused has a code. It stays the same when texts change,
so search and alert by it. `bt-node why` prints the codes of the node that runs here, with the evidence and what
to do next, and `bt-node why --json` the same for programs. The dashboard, [`bt-node status --json`](status-json.md)
and `node.log` use the same codes; in the log, a line has `reason CODE: EVIDENCE` when a reason begins, and
`reason CODE: over` at its end.

| Severity | Means |
| --- | --- |
| note | as it should be, or it passes by itself |
| warning | the node does less than it could; look at it |
| error | the node does nothing useful, or harm, until you act |

`bt-node why --json` prints one document: `state_dir`, `is_running`, `peer_id` and `state`, both null if no node runs
here, and `reasons`, the gravest first, each [like this](status-json.md#a-reason).
"""


def page() -> str:
    """The page as it should be."""
    parts = [_INTRODUCTION]
    for code, entry in sorted(CATALOGUE.items()):
        parts.append(
            f"## `{code}`\n\n"
            f"{entry.severity.capitalize()}: {entry.title}.\n\n"
            f"{entry.meaning}\n\n"
            f"Next: {entry.next_action}.\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
