"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
Block = Annotated[
    int | None,
    typer.Option("--block", help="Block to train; the one with the fewest holders if not given."),
]
Span = Annotated[
    str | None,
    typer.Option(
        "--span",
        metavar="FIRST:END",
        help="Blocks to serve, 0:2 for blocks 0 and 1; the thinnest is trained, the others are "
        "copies of what their replicas agreed on.",
    ),
]
Data = Annotated[Path | None, typer.Option("--data", help="Where your copy of the run's text is.")]
Identity = Annotated[
    Path | None,
    typer.Option("--identity", help="Key file; in the state folder if not given."),
]
RunToken = Annotated[
    str | None,
    typer.Option(
        "--run-token",
        envvar="BT_NODE_RUN_TOKEN",
        help="What lets this node into a closed run.",
    ),
]
RunTokenFile = Annotated[
    Path | None, typer.Option("--run-token-file", help="File with the run token.")
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
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="BT_NODE_CONFIG",
        help="TOML file of settings; config.toml in the state folder if not given.",
    ),
]
# Settings of node.manners. Their commands ask `given` what was a flag: other places are read there.
Hours = Annotated[
    str | None,
    typer.Option(
        "--hours", envvar="BT_NODE_HOURS", help="Train only then, in local time: 22:00-07:00."
    ),
]
IdleOnly = Annotated[
    bool | None,
    typer.Option(
        "--idle-only/--no-idle-only",
        envvar="BT_NODE_IDLE_ONLY",
        help="Train only while nothing else needs the CPU.",
    ),
]
IdleLoad = Annotated[
    float | None,
    typer.Option(
        "--idle-load",
        envvar="BT_NODE_IDLE_LOAD",
        help="Share of the CPU that others may use in idle time.",
    ),
]
IdleAfter = Annotated[
    float | None,
    typer.Option(
        "--idle-after-s",
        envvar="BT_NODE_IDLE_AFTER_S",
        help="Seconds of quiet before it counts as idle.",
    ),
]
OnBattery = Annotated[
    str | None,
    typer.Option(
        "--on-battery", envvar="BT_NODE_ON_BATTERY", help="pause or train while on battery."
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", envvar="BT_NODE_THREADS", help="CPU threads to use.")
]
Nice = Annotated[
    int | None,
    typer.Option("--nice", envvar="BT_NODE_NICE", help="0 to 19; 19 gives way to everything else."),
]
UploadPerSecond = Annotated[
    str | None,
    typer.Option(
        "--upload-bytes-per-s",
        envvar="BT_NODE_UPLOAD_BYTES_PER_S",
        help='Upload cap per second: "500kB".',
    ),
]
UploadPerDay = Annotated[
    str | None,
    typer.Option(
        "--upload-bytes-per-day",
        envvar="BT_NODE_UPLOAD_BYTES_PER_DAY",
        help='Upload cap per day: "2GB".',
    ),
]
MemoryCap = Annotated[
    str | None,
    typer.Option("--memory-bytes", envvar="BT_NODE_MEMORY_BYTES", help='Memory cap: "2GiB".'),
]
Host = Annotated[str, typer.Option("--host", help="IP address to listen on.")]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        envvar="BT_NODE_PORT",
        help="TCP port; 0 takes any free one.",
    ),
]
Announce = Annotated[
    list[str] | None,
    typer.Option(
        "--announce",
        metavar="MULTIADDR",
        help="Address to tell others, without a peer id, if it is not found.",
    ),
]
Device = Annotated[
    str,
    typer.Option("--device", envvar="BT_NODE_DEVICE", help="auto, cpu, cuda, cuda:N or mps."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


def given(context: typer.Context, values: Mapping[str, object]) -> dict[str, object]:
    """Those of some options that stood on the command line, not in the environment."""
    sources = {name: context.get_parameter_source(name) for name in values}
    return {
        name: value
        for name, value in values.items()
        if getattr(sources[name], "name", "") == "COMMANDLINE"
    }


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
