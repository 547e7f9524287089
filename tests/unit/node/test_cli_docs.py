"""The page on the command line names every command, option and environment variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from bootstrap.cli import app as bootstrap_app
from node.cli import app as node_app

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
APPS = {"bt-node": node_app, "bt-bootstrap": bootstrap_app}


def sections() -> dict[str, str]:
    """Text of the page by heading, without deeper headings' text."""
    parts = re.split(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands() -> Iterator[tuple[str, object]]:
    """Every program and every command of it, under its full name."""
    for program, app in APPS.items():
        command = typer.main.get_command(app)
        yield from nested(program, command)


def nested(title: str, command: object) -> Iterator[tuple[str, object]]:
    """A command and all below it."""
    yield title, command
    for name, child in getattr(command, "commands", {}).items():
        yield from nested(f"{title} {name}", child)


def names(command: object) -> set[str]:
    """Option names and environment variables of a command; arguments have none."""
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    found = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    return found | {option.envvar for option in options if option.envvar}


ALL = dict(commands())


@pytest.mark.parametrize("title", sorted(ALL))
def test_each_command_has_a_section_with_all_its_options(title):
    """Every option stands in the section of its command, or among those that commands share."""
    found = sections()
    assert title in found
    text = found[title]
    if title != "bt-bootstrap":
        text += found["bt-node"]  # common options have one table
    words = set(re.findall(r"--?[A-Za-z][\w-]*|[A-Z]+(?:_[A-Z]+)+", text))
    assert set() == names(ALL[title]) - words


@pytest.mark.parametrize("title", sorted(ALL))
def test_the_page_names_no_option_that_does_not_exist(title):
    """An option that was removed or renamed does not linger in the section of its command."""
    known = names(ALL[title]) | {"--help", "-h"}
    if title == "bt-node":
        known |= {name for command in ALL.values() for name in names(command)}
        known.add("--json")
    quoted = " ".join(re.findall(r"`([^`]*)`", sections()[title]))
    written = set(re.findall(r"(?<!\S)--?[a-z][\w-]*", quoted))
    assert set() == written - known
