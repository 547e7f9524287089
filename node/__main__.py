"""Entry point of `bt-node`, and of `python -m node`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line and exit with its code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # modules that are being loaded have no words
    from node.cli import run  # noqa: PLC0415 - signals come while it is loaded
    from node.command_line import run_to_end  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_to_end(run)


if __name__ == "__main__":
    main()
