"""tools.cli_reference: the page on the command line is what the command lines say."""

from __future__ import annotations

import pytest
import typer.main

from bt_p2p.protocol.manifest import RunManifest
from node.cli import app
from tools.cli_reference import PAGE, reference

DEFAULTS = RunManifest()


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    """Whoever changes a command line, or a help text, writes it anew."""
    assert reference() == PAGE.read_text(encoding="utf-8"), "write it anew: make reference"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("name", DEFAULTS.name),
        ("seed", DEFAULTS.seed),
        ("blocks", DEFAULTS.model.num_blocks),
        ("layers", DEFAULTS.model.layers_per_block),
        ("width", DEFAULTS.model.d_model),
        ("heads", DEFAULTS.model.num_heads),
        ("context", DEFAULTS.model.context),
        ("objective", DEFAULTS.objective.name),
        ("round_s", DEFAULTS.rounds.round_s),
        ("batch_size", DEFAULTS.optimizer.batch_size),
        ("learning_rate", DEFAULTS.optimizer.learning_rate),
    ],
)
def test_init_shows_the_defaults_of_the_manifest(name: str, expected: object) -> None:
    """Its options have none of their own, as a file comes between."""
    command = typer.main.get_command(app).commands["init"]
    shown = {option.name: option.show_default for option in command.params}
    assert type(expected)(shown[name]) == expected


def test_every_option_says_what_it_does() -> None:
    """In its help, and so on the page."""

    def silent(command, title: str) -> list[str]:
        own = [f"{title} {each.opts[0]}" for each in command.params if not each.help]
        children = getattr(command, "commands", {}).items()
        return own + [each for name, child in children for each in silent(child, f"{title} {name}")]

    assert [] == silent(typer.main.get_command(app), "bt-node")
