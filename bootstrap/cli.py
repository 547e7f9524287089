"""The command line of `bt-bootstrap`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bt_p2p import __version__
from bt_p2p.protocol.limits import PROTOCOL_VERSION
from node.cli.options import Announce, Host, Identity
from node.command_line import run_app

app = typer.Typer(
    name="bt-bootstrap",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "bt-bootstrap")


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"bt-bootstrap {__version__} (protocol {PROTOCOL_VERSION})")
        raise typer.Exit


@app.command()
def serve(
    manifest: Annotated[
        list[Path] | None,
        typer.Option("--manifest", help="Manifest to hold, from bt-node init; may be repeated."),
    ] = None,
    host: Host = "0.0.0.0",  # noqa: S104
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, envvar="BT_BOOTSTRAP_PORT", help="TCP port; 0 takes any free one."
        ),
    ] = 31337,
    announce: Announce = None,
    initial_peers: Annotated[
        list[str] | None,
        typer.Option("--initial-peers", metavar="MULTIADDR", help="Other peers of the swarm."),
    ] = None,
    identity: Identity = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", envvar="BT_BOOTSTRAP_STATE_DIR", help="Folder of identity."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the protocol version.",
        ),
    ] = False,
    http_host: Annotated[
        str,
        typer.Option(
            envvar="BT_BOOTSTRAP_HTTP_HOST",
            help="IP address of the swarm page; 0.0.0.0 lets other machines read it.",
        ),
    ] = "127.0.0.1",
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            envvar="BT_BOOTSTRAP_HTTP_PORT",
            help="Port of the swarm page; 31380 if not given, or any free one if that is taken.",
        ),
    ] = None,
    no_http: Annotated[
        bool, typer.Option("--no-http", help="Serve no page, no API and no metrics.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log everything.")] = False,
) -> int:
    """Run a well-known peer that newcomers enter the swarm through. Ctrl-C ends it."""
    from bootstrap.peer import BootstrapOptions, run_bootstrap
    from node.http.place import http_place

    return run_bootstrap(
        BootstrapOptions(
            manifest_paths=tuple(manifest or ()),
            host=host,
            port=port,
            announce=tuple(announce or ()),
            initial_peers=tuple(initial_peers or ()),
            identity_path=identity,
            state_path=state_dir,
            http=http_place(http_host, http_port, is_off=no_http),
            is_debugging=debug,
        )
    )
