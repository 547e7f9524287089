"""Where a command gets its manifest from: a file, the swarm, or a run joined before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from bt_p2p.errors import ConfigError, SwarmError
from bt_p2p.protocol.manifest import RunManifest, first_problem


def read_manifest(path: Path, *, run: str | None = None) -> RunManifest:
    """Read a manifest file that `bt-node init` wrote.

    Args:
        path: JSON file.
        run: run id, or the start of one, that it must have.

    Raises:
        ConfigError: cannot be read, is malformed, or has another run id.
    """
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(
            f"manifest {path} cannot be read ({exc.strerror}); make one with: bt-node init"
        ) from exc
    try:
        manifest = RunManifest.model_validate_json(data)
    except ValidationError as exc:
        raise ConfigError(f"manifest {path} is not valid: {first_problem(exc)}") from exc
    if run is not None and not manifest.run_id.startswith(run):
        raise ConfigError(
            f"manifest {path} does not match its id: --run says {run}, its content gives "
            f"{manifest.run_id}"
        )
    return manifest


def choose_run(runs: Mapping[str, RunManifest], run: str | None) -> RunManifest:
    """The one run meant among those found.

    Args:
        runs: by run id.
        run: run id or the start of one; None if there is only one.

    Raises:
        SwarmError: no run was found at all.
        ConfigError: none fits, or several do; lists them.
    """
    if not runs:
        raise SwarmError(
            "the swarm answers, but knows no run; found one with: "
            "bt-node join --manifest FILE --initial-peers …"
        )
    fitting = [run_id for run_id in sorted(runs) if run is None or run_id.startswith(run)]
    if len(fitting) == 1:
        return runs[fitting[0]]
    listed = ", ".join(fitting or sorted(runs))
    if fitting:
        raise ConfigError(f"several runs fit: {listed}; say which with --run")
    raise ConfigError(f"no run starts with {run!r}; there are: {listed}")


def join_command(manifest: RunManifest, address: str) -> str:
    """The line another volunteer pastes."""
    return f"bt-node join --run {manifest.run_id} --initial-peers {address}"
