"""Entry point of `bt-bootstrap`, and of `python -m bootstrap`."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from bootstrap.cli import run  # noqa: PLC0415 - keeps this module importable without typer

        code = run()
    except KeyboardInterrupt:  # while modules are loaded
        code = 128 + signal.SIGINT
    sys.exit(code)


if __name__ == "__main__":
    main()
