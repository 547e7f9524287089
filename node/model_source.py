"""The model that a command asks: a run of the swarm, or an export on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bt_p2p.swarm.loop_thread import LoopThread
from node.asked_model import AskedModel
from node.snapshot import read_snapshot
from node.state_dir import StateDir

_STOP_TIMEOUT_S = 2.0


@contextmanager
def open_model(
    local: Path | None, initial_peers: Sequence[str], state: StateDir, *, run: str | None
) -> Iterator[AskedModel]:
    """The model, for the time of the block.

    Args:
        local: folder of an export; None asks the swarm.
        initial_peers: as the user gave them.
        state: whom else to ask.
        run: run id or the start of one, as the user gave it.

    Raises:
        ConfigError: the export is damaged, or it is not clear whom to ask or which run is meant.
        BootstrapError: nobody answers.
    """
    if local is not None:
        with _open_local(local) as model:
            yield model
        return
    # the parts that need hivemind are not loaded for a model that is here
    from node.client import entry_points, visit  # noqa: PLC0415

    here = read_snapshot(state.path)
    addresses = entry_points(initial_peers, state)
    with visit(addresses, run=run, run_here=here.run_id if here else None) as found:
        yield found.asked()


@contextmanager
def _open_local(folder: Path) -> Iterator[AskedModel]:
    from bt_p2p.chain.local import LocalModel  # noqa: PLC0415
    from node.export import load_export  # noqa: PLC0415

    export = load_export(folder)
    model = LocalModel(export.manifest, export.weights, export.rounds)
    loop = LoopThread("model")
    try:
        yield AskedModel(manifest=export.manifest, client=model, look_up=model.overview, loop=loop)
    finally:
        loop.stop(timeout_s=_STOP_TIMEOUT_S)
