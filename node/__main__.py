"""Entry point of `bt-node`, and of `python -m node`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from node.cli import run  # noqa: PLC0415 - keeps this module importable without typer

    sys.exit(run())


if __name__ == "__main__":
    main()
