"""The page on events, written from their classes.

`make reference` writes it; a test compares.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from node.events.event import EVENT_CLASSES, EVENTS, PeerSeen
from node.events.log import MAX_SIZE_BYTES, NUM_OLD_FILES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "events.md"
_INTRODUCTION = f"""\
# Events

<!-- Written by `make reference` from node/events/event.py: change that. -->

A node writes what happens to it into `events.jsonl` in its state folder: one JSON object in each
line, oldest first. A file of {MAX_SIZE_BYTES // 1_000_000} MB is moved aside as `events.jsonl.1`, and {NUM_OLD_FILES} old ones are kept.
A full disk never stops the node: lines that do not fit are lost, and `lines_lost` tells how many.
The file stays on this computer. It holds peer ids, and neither keys nor texts.

`bt-node replay` shows such a file in the dashboard. How it came to be: [0019](../design/0019-events.md).

Readers skip kinds that they do not know, ignore unknown fields, and skip a line that is not whole:
the last one of a node that was killed may be torn. Losses are nats per byte.

Every event has these fields beside its own:

| Field | Type | Meaning |
| --- | --- | --- |
| `version` | integer | 1; it changes when a reader of the old format would misread the new one |
| `kind` | string | one of the headings below |
| `at_s` | number | when, in seconds since the epoch |
"""
_COMMON = {"version", "kind", "at_s"}


def reference() -> str:
    """The page as it should be."""
    sections = [_section(f"`{_kind(each)}`", each) for each in EVENT_CLASSES]
    return "\n".join(
        [
            _INTRODUCTION,
            *sections,
            _section("A peer of `swarm_seen`", PeerSeen),
            "## JSON schema\n",
            textwrap.indent(json.dumps(EVENTS.json_schema(), indent=1), "    ") + "\n",
        ]
    )


def _kind(event_class: type[BaseModel]) -> str:
    return str(event_class.model_fields["kind"].default)


def _section(title: str, model: type[BaseModel]) -> str:
    lines = [f"## {title}", "", inspect.cleandoc(model.__doc__ or ""), ""]
    schema = model.model_json_schema()
    rows = [
        f"| `{name}` | {_type(found)} | {found.get('description', '')} |"
        for name, found in schema["properties"].items()
        if name not in _COMMON
    ]
    if rows:
        lines += ["| Field | Type | Meaning |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("items", {})
        return "array of peers" if "$ref" in items else "array of " + _type(items)
    return str(schema.get("type", "value"))


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
