"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from bt_p2p.chain.modes import GenerateMode, Precision
from bt_p2p.errors import ConfigError
from node.state_dir import StateDir, default_state_dir

# Typer reads annotations at run time, and Optional is what it documents.
InitialPeers = Annotated[
    list[str] | None,
    typer.Option(
        "--initial-peers",
        metavar="MULTIADDR",
        envvar="BT_NODE_INITIAL_PEERS",
        help="Peers to enter the swarm through; repeat it, or separate them by commas.",
    ),
]
Run = Annotated[
    str | None,
    typer.Option("--run", envvar="BT_NODE_RUN", help="Run id, or the start of one."),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="BT_NODE_STATE_DIR",
        help="Folder of identity, checkpoints and log.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Log everything; show tracebacks.")]
PrecisionName = Annotated[
    str,
    typer.Option(
        "--precision",
        help="How numbers travel: float32 is exact, float16 half the bytes, int8 a quarter between "
        "blocks that need each other.",
    ),
]
Local = Annotated[
    Path | None,
    typer.Option("--local", help="Ask a folder that bt-node export wrote, and no swarm."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


def state_path(path: Path | None) -> Path:
    """The state folder that was asked for, or the default one."""
    return StateDir(path or default_state_dir()).path


def generate_mode(name: str) -> GenerateMode:
    """A mode by name. Raises ConfigError for an unknown one."""
    return cast("GenerateMode", _one_of(get_args(GenerateMode), "mode", name))


def wire_precision(name: str) -> Precision:
    """A precision by name. Raises ConfigError for an unknown one."""
    return cast("Precision", _one_of(get_args(Precision), "precision", name))


def _one_of(names: Sequence[str], what: str, name: str) -> str:
    if name not in names:
        raise ConfigError(f"{what} {name!r} is not one of: {', '.join(names)}")
    return name
