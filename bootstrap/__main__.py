"""Entry point of `bt-bootstrap`, and of `python -m bootstrap`."""

from __future__ import annotations

from collections.abc import Callable

from node.command_line import run_to_end


def main() -> None:
    """Run the command line and exit with its code."""
    run_to_end(_load)


def _load() -> Callable[[], int]:
    from bootstrap.cli import run  # noqa: PLC0415 - signals come while it is loaded

    return run


if __name__ == "__main__":
    main()
