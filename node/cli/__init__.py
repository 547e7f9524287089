"""The command line of `bt-node`. Importing it, and `--help`, load neither torch nor hivemind."""

from __future__ import annotations

from node.cli import found, take_part, use  # noqa: F401 - each adds its commands, in this order

# isort: split
from node.cli import control, look_back  # noqa: F401
from node.cli.app import app
from node.command_line import run_app

__all__ = ["app", "run"]


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "bt-node")
