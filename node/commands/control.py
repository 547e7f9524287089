"""`bt-node pause`, `resume`, `finish` and `snooze`: tell the node that runs here."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from bt_p2p.errors import ConfigError
from node.control.client import ask_node
from node.control.messages import MAX_SNOOZE_S, Answer, Operation, Request

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def command_node(
    op: Operation, *, state_path: Path, as_json: bool, duration: str | None = None
) -> None:
    """Have the running node obey, and print what holds now.

    Raises:
        ConfigError: the duration cannot be read.
        NodeNotReachedError: no node runs here, or it refuses.
    """
    duration_s = None if duration is None else parse_duration_s(duration)
    answer = ask_node(state_path, Request(op=op, duration_s=duration_s))
    if as_json:
        typer.echo(answer.model_dump_json())
        return
    typer.echo(answer_words(answer))
    if answer.problem:
        typer.echo(f"bt-node: warning: {answer.problem}", err=True)


def answer_words(answer: Answer) -> str:
    """What holds now, in a line."""
    node = f"node of process {answer.pid}"
    if answer.is_finishing:
        when = "now" if answer.pause_reason else "after this round"
        return f"{node} leaves {when}"
    if answer.pause_reason:
        return f"{node} does not train: {answer.pause_words}; others still get its block"
    return f"{node} trains"


def parse_duration_s(text: str) -> float:
    """A duration as people write it: "2h", "90m", "1h30m".

    Raises:
        ConfigError: it cannot be read, or is too long.
    """
    if not text or _PART.sub("", text):
        raise ConfigError(f"duration {text[:40]!r} cannot be read; write 2h, 90m or 1h30m")
    duration_s = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    if not 0 < duration_s <= MAX_SNOOZE_S:
        raise ConfigError(
            f"duration {text[:40]} is out of range; snooze for up to "
            f"{MAX_SNOOZE_S / _UNITS_S['d']:g}d, or use: bt-node pause"
        )
    return duration_s
