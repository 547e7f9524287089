"""The quick part: this machine alone, without any network. `join` begins with it, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.manifest import RunManifest
from node.doctor import machine
from node.doctor.finding import Finding
from node.state_dir import StateDir


def look_at_machine(
    state: StateDir,
    *,
    identity_path: Path,
    host: str,
    port: int,
    device: str,
    look_at_device: Callable[[str], Finding] = machine.device,
) -> list[Finding]:
    """Everything that does not depend on the run.

    Args:
        state: folder of the node.
        identity_path: its key file.
        host: where it listens.
        port: and on which port.
        device: what it computes on.
        look_at_device: another look, before processes are forked.
    """
    return [
        machine.state_folder(state),
        machine.identity(identity_path),
        machine.files(*machine.open_file_limits()),
        machine.port(host, port, state),
        look_at_device(device),
    ]


def look_at_run(
    manifest: RunManifest, state: StateDir, *, span: range | None = None
) -> list[Finding]:
    """Whether a block of the run, and copies of the others of a span, fit this machine."""
    batch_size = manifest.optimizer.batch_size
    sizes = block_sizes(manifest.model, manifest.objective, batch_size=batch_size)
    return [
        machine.memory(
            sizes, batch_size=batch_size, num_copies=0 if span is None else len(span) - 1
        ),
        machine.disk(state.run_folder(manifest.run_id), sizes),
    ]
