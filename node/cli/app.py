"""The command line of `bt-node` before its commands are added."""

from __future__ import annotations

from typing import Annotated

import typer

from bt_p2p import __version__
from bt_p2p.protocol.limits import PROTOCOL_VERSION

app = typer.Typer(
    name="bt-node",
    help="Lend this computer to a swarm that trains one language model, a block per peer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"bt-node {__version__} (protocol {PROTOCOL_VERSION})")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the protocol version.",
        ),
    ] = False,
) -> None:
    pass
