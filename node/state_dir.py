"""The folder in which a node keeps everything: identity, runs, checkpoints, snapshot, log.

identity.key            who this node is; back it up
node.lock               held while a node runs here
node.json               what the running node knows of itself
config.toml             the user's settings
manners.json            what the user asked the running node for
control.sock            where commands reach it
node.log                its log
events.jsonl            what happened to it, as events; older ones in .1 and .2
receipts.json           what it has given, by run
peers.json              addresses of peers met, for joining again
cache/                  texts that are slow to get
runs/<run id>/          manifest.json, block-<b>.safetensors and the one before it;
                        block-<b>.<hash>.part of a download that is not finished

Texts that are slow to get are kept in the user's cache folder, for all nodes of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import platformdirs

from bt_p2p.errors import ConfigError, ProtocolError
from bt_p2p.protocol.address import PeerAddress, dialable, parse_peer_address
from bt_p2p.protocol.manifest import RunManifest, is_run_id
from node.whole_file import replace_file

logger = logging.getLogger(__name__)

_MAX_REMEMBERED_PEERS = 32
_PROBE = bytes(4096)
"""Written once at the start, so that a full disk is told before anything else is done."""


def default_state_dir() -> Path:
    """The one documented place, whatever the current folder is."""
    return Path(platformdirs.user_state_dir("bt-node", appauthor=False))


def default_cache_dir() -> Path:
    """Where all nodes of this user keep texts that are slow to get."""
    return Path(platformdirs.user_cache_dir("bt-node", appauthor=False))


class StateDir:
    """Paths inside the folder, and the few small files that are not written elsewhere."""

    def __init__(self, path: Path) -> None:
        """Name a folder; nothing is created yet."""
        self.path = path
        self.identity_path = path / "identity.key"
        self.log_path = path / "node.log"
        self.events_path = path / "events.jsonl"
        self.cache_dir = default_cache_dir()
        self._unwritten: set[str] = set()

    def create(self) -> None:
        """Make the folder, readable by its owner only, and try to write to it.

        Raises:
            ConfigError: it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = self.path / f".probe-{os.getpid()}"
            try:
                probe.write_bytes(_PROBE)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as exc:
            raise ConfigError(
                f"state folder {self.path} cannot be written ({exc.strerror}); choose another with "
                f"--state-dir"
            ) from exc

    def run_folder(self, run_id: str) -> Path:
        """Where everything of one run is kept."""
        return self.path / "runs" / run_id

    def checkpoint_path(self, run_id: str, block: int) -> Path:
        """Where the checkpoint of one block of one run is kept."""
        return self.run_folder(run_id) / f"block-{block}.safetensors"

    def held_blocks(self, run_id: str) -> list[int]:
        """Blocks of a run that have a checkpoint here, the latest written first."""
        paths = (self.path / "runs" / run_id).glob("block-*.safetensors")
        newest_first = sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
        indices = [path.stem.removeprefix("block-") for path in newest_first]
        return [int(index) for index in indices if index.isdecimal()]

    def remember_manifest(self, manifest: RunManifest) -> None:
        """Keep a manifest, so that the run can be resumed without anybody's help."""
        self._keep(self.run_folder(manifest.run_id) / "manifest.json", manifest.canonical_bytes())

    def remembered_manifests(self) -> dict[str, RunManifest]:
        """Manifests of runs joined before, by run id; damaged ones are left out."""
        found: dict[str, RunManifest] = {}
        for path in sorted((self.path / "runs").glob("*/manifest.json")):
            run_id = path.parent.name
            if is_run_id(run_id):
                try:
                    data = path.read_bytes()
                    found[run_id] = RunManifest.from_untrusted_bytes(data, run_id=run_id)
                except (OSError, ProtocolError):
                    continue
        return found

    def remember_peers(self, addresses: Iterable[str]) -> None:
        """Keep addresses of peers met, the latest first."""
        known = [address.text for address in self.remembered_peers()]
        merged = list(dict.fromkeys([*addresses, *known]))[:_MAX_REMEMBERED_PEERS]
        self._keep(self.path / "peers.json", json.dumps(merged).encode())

    def remembered_peers(self) -> list[PeerAddress]:
        """Addresses of peers met before; none if the file is missing or damaged."""
        try:
            texts = json.loads((self.path / "peers.json").read_bytes())
            return [parse_peer_address(text) for text in dialable(map(str, texts))]
        except (OSError, ValueError, TypeError, RecursionError):
            return []

    def _keep(self, path: Path, data: bytes) -> None:
        """Replace a file that only makes the next start easier: a full disk is told once."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
        except OSError as exc:
            if path.name not in self._unwritten:
                logger.warning("cannot write %s, the old one stays: %s", path, exc)
            self._unwritten.add(path.name)
        else:
            self._unwritten.discard(path.name)


class NodeLock:
    """Only one node may use a state folder. The system drops the lock when the process dies."""

    def __init__(self, state_dir: StateDir) -> None:
        """Name the lock; it is taken by `with`."""
        self._path = state_dir.path / "node.lock"
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            ConfigError: another node holds it; names its process.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise ConfigError(
                f"a node already runs with state folder {self._path.parent} (process {owner}); "
                f"stop it, or give this one another --state-dir"
            ) from exc
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # full disk: the lock holds, it only bears no name
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let it go."""
        if self._descriptor is not None:
            # Forked children share the lock; unlocking ends it for all of them.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None
