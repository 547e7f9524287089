"""The page on the command line, written from the command lines themselves by typer.

`make reference` writes it; a test compares.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "cli.md"
PROGRAMS = {"bt-node": "node.cli", "bt-bootstrap": "bootstrap.cli"}
_TIMEOUT_S = 60.0
_INTRODUCTION = """\
# Command line

<!-- Written by `make reference` from the help texts in node/cli and bootstrap/cli.py: change those. -->

`--help` says the same. Results go to standard output, everything else to standard error. What the exit
codes mean: [exit codes](exit-codes.md). `bt-node --install-completion` teaches your shell the commands and
options, and `bt-node --show-completion` prints what that would add.

Commands that use the model or show the swarm ask, in this order: the peers named with `--initial-peers`,
the node that runs with the state folder, the peers it has met before.
"""
_SEE = {
    "bt-node init": "[start your own run](../start-your-own-run.md)",
    "bt-node token": "[a closed run](../start-your-own-run.md#a-closed-run)",
    "bt-node join": "[run a node](../run-a-node.md)",
    "bt-node doctor": "[the doctor](../doctor.md), [its JSON](doctor-json.md)",
    "bt-node status": "[its JSON](status-json.md)",
    "bt-node why": "[all reasons](reasons.md)",
    "bt-node replay": "[look back](../look-back.md), [events](events.md)",
    "bt-node stats": "[look back](../look-back.md#what-this-computer-has-given)",
    "bt-node serve": "[serve the model](../serve.md)",
    "bt-bootstrap": "[run a bootstrap peer](../run-a-bootstrap-peer.md)",
}
"""Pages that say more, by command."""


def reference() -> str:
    """The page as it should be."""
    return "\n".join([_INTRODUCTION, *(_section(*item) for item in PROGRAMS.items())])


def _section(program: str, module: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "typer", module, "utils", "docs", "--name", program],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
        cwd=ROOT,
    )
    # one level deeper, below the page's own title
    text = re.sub(r"^#+ ", r"#\g<0>", html.unescape(done.stdout), flags=re.MULTILINE)
    text = re.sub(r"\[default: \((.*)\)\]", r"[default: \1]", text)
    text = _with_whole_lines(text)
    for command, pages in _SEE.items():
        heading = rf"^#+ `{re.escape(command)}`\n\n.*\n"
        text = re.sub(heading, rf"\g<0>\nSee {pages}.\n", text, count=1, flags=re.MULTILINE)
    return text.rstrip() + "\n"


def _with_whole_lines(text: str) -> str:
    """Lists of commands with links, and with whole lines in place of those that typer cuts."""
    lines: dict[str, str] = dict(
        re.findall(r"^#+ `[\w -]+?([\w-]+)`\n\n(.*)$", text, flags=re.MULTILINE)
    )
    titles: dict[str, str] = {
        title.rpartition(" ")[2]: title.replace(" ", "-")
        for title in re.findall(r"^#+ `(.*)`$", text, flags=re.MULTILINE)
    }
    return re.sub(
        r"^\* `(\w+)`: .*$",
        lambda found: f"* [`{found[1]}`](#{titles[found[1]]}): {lines[found[1]]}",
        text,
        flags=re.MULTILINE,
    )


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
